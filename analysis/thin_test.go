package analysis

import (
	"fmt"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/hitless/hitless/internal/testfiles"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/record/recordtest"
)

// kept counts the attempts of a record that stand in it one by one, and those in buckets.
func kept(t testing.TB, h *record.History) (single, bucketed int) {
	t.Helper()
	for e, err := range h.Entries() {
		switch {
		case err != nil:
			t.Fatal(err)
		case e.Bucket != nil:
			bucketed += e.Bucket.Attempts()
		default:
			single++
		}
	}
	return single, bucketed
}

// sameReport demands that the report of a thinned record is that of the whole one: all of it, but that quantiles of the
// latency may differ by 1 %.
func sameReport(whole, thin *Report) error {
	lanes := func(r *Report) (all []*LaneReport) {
		for _, list := range [...][]LaneReport{r.Lanes, r.Controls} {
			for i := range list {
				all = append(all, &list[i])
			}
		}
		return all
	}
	if len(lanes(whole)) != len(lanes(thin)) {
		return fmt.Errorf("%d lanes, of the thinned record %d", len(lanes(whole)), len(lanes(thin)))
	}
	for i, lane := range lanes(whole) {
		w, t := &lane.Latency, &lanes(thin)[i].Latency
		for _, q := range [...]struct{ whole, thin *float64 }{{&w.P50, &t.P50}, {&w.P99, &t.P99}} {
			if math.Abs(*q.whole-*q.thin) > 0.01**q.whole+2e-6 {
				return fmt.Errorf("a quantile of the latency is %v s, of the thinned record %v s", *q.whole, *q.thin)
			}
			*q.thin = *q.whole
		}
	}
	thin.DetectionFloor.NodeMs = whole.DetectionFloor.NodeMs // a mean in the thinned record
	if diff := gocmp.Diff(whole, thin); diff != "" {
		return fmt.Errorf("the report differs (-whole +thinned):\n%s", diff)
	}
	return nil
}

// Thinning costs nothing that a verdict rests on, whatever the faults, the changes of the balancer's table and the lateness.
func TestAThinnedRecordHasTheReportOfTheWhole(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := faultyRunOf(rt, []float64{5, 20, 100}, func(time.Duration) time.Duration {
			return time.Duration(rapid.IntRange(1, 40).Draw(rt, "seconds")) * time.Second
		})
		for i := range s.Faults { // else all is near to one
			f := &s.Faults[i]
			f.To = min(f.To, f.From+time.Duration(rapid.IntRange(0, 3000).Draw(rt, "ms"))*time.Millisecond)
		}
		s.Remake()
		whole, err := Build(s.Write(t))
		if err != nil {
			rt.Fatal(err)
		}
		h := s.Thinned(t, time.Duration(rapid.IntRange(0, 500).Draw(rt, "events told late, ms"))*time.Millisecond)
		thin, err := Build(h)
		if err != nil {
			rt.Fatal(err)
		}
		if err := CheckAgreement(h, thin); err != nil {
			rt.Fatal(err)
		}
		if err := sameReport(whole, thin); err != nil {
			rt.Fatal(err)
		}
	})
}

func TestThinningKeepsWhatIsNearAFailure(t *testing.T) {
	s := recordtest.Calm()
	h := s.Thinned(t, 0)
	single, bucketed := kept(t, h)
	if single+bucketed != len(s.Attempts) || bucketed < len(s.Attempts)/2 {
		t.Errorf("%d attempts stand one by one and %d in buckets, of %d", single, bucketed, len(s.Attempts))
	}
	near := 0
	for e, err := range h.Entries() {
		if err != nil {
			t.Fatal(err)
		}
		if at := e.Intended; e.Bucket == nil && at > 28200*time.Millisecond && at < 32*time.Second {
			near++
		}
	}
	if near < 3.7*200 {
		t.Errorf("%d attempts stand one by one within 2 s of the outage, want all 760", near)
	}
	for _, err := range h.Attempts() {
		if err != nil {
			if !strings.Contains(err.Error(), "thinned") {
				t.Error(err)
			}
			return
		}
	}
	t.Error("a reader of single attempts is not told that some are missing")
}

// However rarely a path is taken, the good attempts before and after its failure stand one by one: they bound the outage.
func TestThinningKeepsTheBoundsOfARarePath(t *testing.T) {
	s := recordtest.Calm()
	s.Faults = nil
	svc, l := s.Services[recordtest.WebAddress], recordtest.Lane{ID: 1, Target: recordtest.WebAddress}
	for i := range s.Attempts {
		rare := i%1000 < 16 // each 5 s, and enough of them for a bucket
		for a := &s.Attempts[i]; a.Class != record.OK || (svc.Choose(a.Source, recordtest.WebAddress, a.Start) == "node-2") != rare; {
			*a = s.Attempt(l, svc, a.Seq, a.Intended)
		}
	}
	for i := 6000; i < 6016; i++ {
		s.Attempts[i] = recordtest.FailedAttempt(s.Attempts[i], record.Refused)
	}
	whole := reportOf(t, s)
	h := s.Thinned(t, 0)
	thin, err := Build(h)
	if err != nil {
		t.Fatal(err)
	}
	if err := sameReport(whole, thin); err != nil {
		t.Error(err)
	}
	if o := whole.Lanes[0].Outages; len(o) != 1 || o[0].UpperMs < 9000 {
		t.Errorf("%+v, want one outage with 10 s between the good attempts around it", o)
	}
	if _, bucketed := kept(t, h); bucketed < len(s.Attempts)/2 {
		t.Errorf("only %d of %d attempts are in buckets", bucketed, len(s.Attempts))
	}
}

// The red twins: a bucket that was lost, or that stands twice, is told as lost and doubled attempts.
func TestAThinnedRecordTellsOfLostAndDoubledBuckets(t *testing.T) {
	h := recordtest.Calm().Thinned(t, 0)
	for _, c := range []struct {
		times int
		want  string
	}{{0, "are missing and 0 stand twice"}, {1, ""}, {2, "0 are missing and"}} {
		dir := t.TempDir()
		for _, name := range []string{record.RunFile, record.EventsFile} {
			testfiles.Write(t, dir, name, testfiles.Read(t, h.Dir(), name)[0])
		}
		f, err := os.Create(filepath.Join(dir, record.AttemptsFile))
		if err != nil {
			t.Fatal(err)
		}
		w, changed := record.NewAttemptWriter(f), false
		for e, err := range h.Entries() {
			switch {
			case err != nil:
				t.Fatal(err)
			case e.Bucket == nil:
				err = w.Write(e.Attempt)
			case changed:
				err = w.WriteBucket(e.Bucket)
			default:
				for range c.times {
					err = w.WriteBucket(e.Bucket)
				}
				changed = true
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		f.Close()
		again, err := record.OpenUnsealed(dir)
		if err != nil {
			t.Fatal(err)
		}
		r, err := Build(again)
		if err != nil {
			t.Fatal(err)
		}
		told := slices.IndexFunc(r.Reasons, func(s string) bool { return strings.Contains(s, "lost records") })
		if (told >= 0) != (c.want != "") || (told >= 0 && !strings.Contains(r.Reasons[told], c.want)) {
			t.Errorf("with the first bucket %d times: %q", c.times, r.Reasons)
		}
	}
}

// The bounds of a record that is thinned, at 200 a second with a failure each minute. All three are a sum: what an hour
// without failures needs, and what is kept one by one near each of them. What is held while it is recorded does not grow.
const (
	thinHourBytes    = record.ThinnedSecondBytes * 3600 // on disk, an hour without failures
	thinFailureBytes = 64 << 10                         // on disk, for each failure (4 s, one by one)
	thinHeldBytes    = 4 << 20                          // of memory while it is recorded
)

func TestAnHourOfThinnedRecordHasItsRoom(t *testing.T) {
	for _, failures := range []int{0, 60} {
		dir := t.TempDir()
		w, err := record.NewHistoryWriter(filepath.Join(dir, "history"), record.Run{Scenario: "soak", Record: record.RecordThinned})
		if err != nil {
			t.Fatal(err)
		}
		w.Event(record.Event{Object: "web", Body: record.Lane{ID: 1, Name: "web", Rate: soakRate, Target: recordtest.WebAddress.String(), Protocol: "tcp-new",
			Dial: 3 * time.Second, Reply: time.Second}})
		var early, grown int64
		const n = 3600 * soakRate
		every := n
		if failures > 0 {
			every = n / failures
		}
		for i := range n {
			if i == n/6 {
				early = held()
			}
			w.Attempt(hourAttempt(i, i%every == every/2 && failures > 0))
		}
		if grown = held() - early; grown > thinHeldBytes {
			t.Errorf("recording an hour holds %d bytes more than ten minutes, %d are allowed", grown, int64(thinHeldBytes))
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(filepath.Join(dir, "history", record.AttemptsFile))
		if err != nil {
			t.Fatal(err)
		}
		most := int64(thinHourBytes + failures*thinFailureBytes)
		if info.Size() > most {
			t.Errorf("an hour with %d failures takes %d bytes on disk, %d are allowed", failures, info.Size(), most)
		}
		h, err := record.OpenUnsealed(dir)
		if err != nil {
			t.Fatal(err)
		}
		before := held()
		a, err := New(h)
		if err != nil {
			t.Fatal(err)
		}
		analysed := held() - before
		if analysed > most {
			t.Errorf("the analysis of an hour with %d failures holds %d bytes, %d are allowed", failures, analysed, most)
		}
		l := a.Lanes[0]
		missing, _, twice := l.lost()
		if l.attempts != n || len(l.Outages) != failures || missing+twice > 0 {
			t.Errorf("%d attempts of %d with %d outages of %d, %d missing, %d twice", l.attempts, n, len(l.Outages), failures, missing, twice)
		}
		t.Logf("%d failures: %d bytes on disk, %d held while recording, %d by the analysis", failures, info.Size(), grown, analysed)
	}
}

// hourAttempt is one of an hour at soakRate, with times that differ as on a busy machine.
func hourAttempt(i int, fails bool) record.Attempt {
	at := time.Duration(i) * time.Second / soakRate
	noise := time.Duration(uint32(i)*2654435761>>16) * 10 * time.Nanosecond // up to 655 µs
	a := record.Attempt{Lane: 1, Seq: uint64(i), Intended: at, Start: at + noise, Connect: 500*time.Microsecond + noise, Total: time.Millisecond + 2*noise,
		Class: record.OK, Source: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 200, byte(i >> 8), byte(i)}), uint16(20000+i%40000)),
		Backend: fmt.Sprintf("web-%08x-%d", i/(60*soakRate), i%3), Node: recordtest.NodeNames[i%3], Generation: fmt.Sprintf("%08x", i/(60*soakRate))}
	if fails {
		a.Class, a.Backend, a.Node, a.Generation, a.Detail, a.Total, a.Connect = record.ConnectTimeout, "", "", "", "ETIMEDOUT", 3*time.Second, 0
	}
	return a
}
