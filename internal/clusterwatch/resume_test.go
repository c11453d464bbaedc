package clusterwatch

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/testfiles"
	"github.com/hitless/hitless/record"
)

// killed returns options that resume the watch from what a kill at this instant leaves: its files as they are now.
func (r *running) killed() Options {
	r.t.Helper()
	o := r.o
	o.Out, o.Resume = filepath.Join(r.t.TempDir(), "killed"), true
	if err := os.CopyFS(filepath.Join(o.Out, "unfinished"), os.DirFS(filepath.Join(r.o.Out, "unfinished"))); err != nil {
		r.t.Fatal(err)
	}
	r.stop()
	<-r.done
	return o
}

// A watch that was killed goes on in its record: nothing of it is lost, and the time in between is missing, not ok. A Service that was
// deleted meanwhile is seen as deleted.
func TestResumedWatchHasMissingTime(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	a, b := testfiles.Loopback(t), testfiles.Loopback(t)
	listen(t, a)
	listen(t, b)
	s.service("web", nil, a)
	s.service("gone", nil, b)
	r := s.start(s.options())
	r.goesOn(60)
	o := r.killed()
	before := attemptsIn(t, filepath.Join(o.Out, "unfinished"))
	s.remove("Service", "gone")
	again := s.start(o)
	again.goesOn(40)
	report := again.report(analysis.Invalid) // no loss was seen, and yet it is no pass
	text := strings.Join(report.Reasons, "\n")
	for _, want := range []string{"no loss was seen, but 2 lanes have no record", "a gap in the record of lane " + laneName("web", a), "a gap in the record of lane " + laneName("gone", b)} {
		if !strings.Contains(text, want) {
			t.Errorf("the reasons lack %q:\n%s", want, text)
		}
	}
	lanes := lanesOf(report)
	if got := lanes[laneName("web", a)].Attempts + lanes[laneName("gone", b)].Attempts; got != before || before == 0 {
		t.Errorf("%d attempts of before the kill are in the report, %d were recorded", got, before)
	}
	if l := lanes[laneName("web", a)+" (2)"]; l.Attempts < 20 || l.Dropped > 0 {
		t.Errorf("%d attempts after the kill, %d dropped", l.Attempts, l.Dropped)
	}
	if _, has := lanes[laneName("gone", b)+" (2)"]; has {
		t.Error("the deleted Service has a lane after the kill")
	}
}

// A watch with a duration ends when it would have ended without the kill.
func TestResumedWatchMeasuresWhatIsLeftOfItsDuration(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	a := testfiles.Loopback(t)
	listen(t, a)
	s.service("web", nil, a)
	r := s.start(s.options())
	r.goesOn(60) // at least 3 s
	o := r.killed()
	o.Duration = 6 * time.Second
	again := s.start(o)
	<-again.done
	if again.err != nil {
		t.Fatal(again.err)
	}
	again.totals()
	var begun, wentOn, ended time.Duration
	for e, err := range again.history().Events() {
		if err != nil {
			t.Fatal(err)
		}
		switch body := e.Body.(type) {
		case record.Phase:
			switch e.Object {
			case "scenario":
				begun = e.At
			case "end":
				ended = e.At
			}
		case record.MissingRecord:
			wentOn = body.To
		}
	}
	over := begun + o.Duration
	if begun == 0 || wentOn <= begun || ended == 0 {
		t.Fatalf("the record lacks the scenario at %v, the end of its gap at %v or its end at %v", begun, wentOn, ended)
	}
	if over-wentOn < 900*time.Millisecond {
		t.Skipf("the machine is too busy: only %v are left after the kill", over-wentOn)
	}
	if ended < over || ended > over+(wentOn-begun)/2 { // a duration that began anew would end later than that
		t.Errorf("it ended at %v, want %v; it began at %v and went on at %v", ended, over, begun, wentOn)
	}
	if l := lanesOf(again.result.Report)[laneName("web", a)+" (2)"]; l.Attempts < 10 {
		t.Errorf("%d attempts after the kill", l.Attempts)
	}
}

// A target that fails when the watch goes on is measured at once: its loss is no wait for a first answer. The verdict is fail, not
// invalid: the loss was seen.
func TestLossAfterAKillIsSeen(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	a := testfiles.Loopback(t)
	l := listen(t, a)
	s.service("web", nil, a)
	r := s.start(s.options())
	r.goesOn(40)
	o := r.killed()
	l.close()
	again := s.start(o)
	again.attempted(laneName("web", a) + " (2)")
	listen(t, a)
	again.goesOn(20)
	report := again.report(analysis.Fail)
	if l := lanesOf(report)[laneName("web", a)+" (2)"]; l.Dropped == 0 || l.OK == 0 {
		t.Errorf("%d attempts after the kill were ok and %d dropped, want some of each", l.OK, l.Dropped)
	}
	for e, err := range again.history().Events() {
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(e.Text, "its lane begins") {
			t.Errorf("the target was not measured at once: %s", e.Text)
		}
	}
	if report.Totals.ByClass["refused"] == 0 || !strings.Contains(strings.Join(report.Reasons, "\n"), "a gap in the record") {
		t.Errorf("%+v, %q", report.Totals, report.Reasons)
	}
	if _, err := os.Stat(filepath.Join(o.Out, "unfinished")); err == nil {
		t.Error("the unfinished record is left beside the report")
	}
}

// An address whose lane ended before the kill, and that is dead when it comes back after it, is measured again.
func TestAnAddressThatComesBackDeadAfterAKill(t *testing.T) {
	t.Parallel()
	m := newMovedService(t)
	r := m.start(m.measuredAway().killed())
	r.goesOn(20)
	m.comesBackDead(r)
}

// Look-ups of names take their time when a watch goes on: each lane begins after its own.
func TestLanesBeginAfterTheirLookUps(t *testing.T) {
	t.Parallel()
	const takes = 500 * time.Millisecond
	s := newStand(t)
	addresses, slow := map[string]netip.Addr{}, new(atomic.Bool)
	for _, name := range []string{"a", "b", "c"} {
		at := testfiles.Loopback(t)
		listen(t, at)
		addresses[name+".example"] = netip.MustParseAddr(at)
		s.balanced(name, name+".example")
	}
	o := s.options()
	o.resolve = func(_ context.Context, _, host string) ([]netip.Addr, error) {
		if slow.Load() {
			time.Sleep(takes) // the tested length
		}
		return []netip.Addr{addresses[host]}, nil
	}
	r := s.start(o)
	r.goesOn(10)
	o = r.killed()
	slow.Store(true)
	again := s.start(o)
	again.goesOn(10)
	again.report(analysis.Invalid)
	begins := map[string]time.Duration{}
	for e, err := range again.history().Events() {
		if err != nil {
			t.Fatal(err)
		}
		if l, is := e.Body.(record.Lane); is {
			begins[l.Name] = e.At
		}
	}
	a, b, c := begins["shop/a:18080 at a.example (2)"], begins["shop/b:18080 at b.example (2)"], begins["shop/c:18080 at c.example (2)"]
	if a == 0 || b-a < takes || c-b < takes {
		t.Errorf("the lanes begin at %v, %v and %v, and each look-up takes %v", a, b, c, takes)
	}
}

// A watch that was killed before its proof was over cannot go on, and its record stays.
func TestWatchKilledInItsBaselineIsNotResumed(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	a := testfiles.Loopback(t)
	listen(t, a)
	s.service("web", nil, a)
	o := s.options()
	dir := filepath.Join(o.Out, "unfinished")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := o.WriteHost(dir, time.Now()); err != nil {
		t.Fatal(err)
	}
	w, err := record.NewHistoryWriter(filepath.Join(dir, record.HistoryDir), record.Run{Scenario: Scenario})
	if err != nil {
		t.Fatal(err)
	}
	w.Event(record.Event{At: time.Second, Object: "baseline", Body: record.Phase{}})
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	o.Resume = true
	if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), `phase "baseline"`) || !strings.Contains(err.Error(), "watch stop") {
		t.Errorf("%v", err)
	}
	if _, err := record.OpenUnsealed(filepath.Join(dir, record.HistoryDir)); err != nil {
		t.Error(err)
	}
}

// attemptsIn counts the attempts of measured lanes that can be read of an unfinished record.
func attemptsIn(t *testing.T, dir string) (n int) {
	t.Helper()
	h, err := record.OpenUnsealed(filepath.Join(dir, record.HistoryDir))
	if err != nil {
		t.Fatal(err)
	}
	controls := map[uint16]bool{}
	for e, err := range h.Events() {
		if l, is := e.Body.(record.Lane); err == nil && is {
			controls[l.ID] = l.Control
		}
	}
	for e, err := range h.Entries() {
		switch {
		case err != nil:
			return n // the end that the kill cut off
		case e.Bucket != nil:
			n += e.Bucket.Attempts()
		case !controls[e.Lane]:
			n++
		}
	}
	return n
}
