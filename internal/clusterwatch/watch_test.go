package clusterwatch

import (
	"math"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/cluster"
	"github.com/hitless/hitless/internal/testfiles"
	"github.com/hitless/hitless/probes"
	"github.com/hitless/hitless/probes/session"
	"github.com/hitless/hitless/record"
)

func laneName(service, address string) string { return "shop/" + service + ":18080 at " + address }

// A Service appears, changes its address and disappears: its lanes begin and end with that, and nothing of it is a loss.
func TestLanesFollowTheServices(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	a, b, c, d := testfiles.Loopback(t), testfiles.Loopback(t), testfiles.Loopback(t), testfiles.Loopback(t)
	for _, each := range []string{a, b, c} {
		listen(t, each)
	}
	s.service("web", nil, a)
	r := s.start(s.options())
	r.goesOn(10)
	s.service("late", nil, b)
	r.attempted(laneName("late", b))
	s.service("silent", nil, d) // no process listens there
	r.goesOn(20)
	s.service("late", nil, c)
	r.attempted(laneName("late", c))
	s.service("late", nil, b)
	r.attempted(laneName("late", b) + " (2)")
	s.remove("Service", "late")
	r.recorded("the Service shop/late was deleted")
	r.goesOn(10)
	report := r.report(analysis.Pass)
	lanes := lanesOf(report)
	for _, name := range []string{laneName("web", a), laneName("late", b), laneName("late", c), laneName("late", b) + " (2)"} {
		if l, has := lanes[name]; !has || l.Attempts == 0 || l.Dropped > 0 {
			t.Errorf("lane %s: %d attempts, %d dropped", name, l.Attempts, l.Dropped)
		}
	}
	text := strings.Join(report.Reasons, "\n")
	for _, want := range []string{laneName("silent", d) + " was skipped: it never answered", "shop/web:53/UDP was skipped: only TCP ports are probed"} {
		if !strings.Contains(text, want) {
			t.Errorf("the reasons lack %q:\n%s", want, text)
		}
	}
	if len(lanes) != 4 {
		t.Errorf("%d lanes, want 4", len(lanes))
	}
}

// movedService is a stand with a Service whose first address can end, and which can move to another one, beside the Service web.
type movedService struct {
	*stand
	web, first, next string // addresses
	server           *backend
}

func newMovedService(t *testing.T) movedService {
	m := movedService{stand: newStand(t), web: testfiles.Loopback(t), first: testfiles.Loopback(t), next: testfiles.Loopback(t)}
	listen(t, m.web)
	listen(t, m.next)
	m.server = listen(t, m.first)
	m.service("web", nil, m.web)
	m.service("moved", nil, m.first)
	return m
}

// measuredAway starts a watch that measures the first address, and then the next one.
func (m movedService) measuredAway() *running {
	r := m.start(m.options())
	r.attempted(laneName("moved", m.first))
	m.service("moved", nil, m.next)
	r.attempted(laneName("moved", m.next))
	return r
}

// comesBackDead ends the first address, gives it back to the Service, and returns the report of a watch that must lose all attempts there.
func (m movedService) comesBackDead(r *running) *analysis.Report {
	m.t.Helper()
	m.server.close()
	m.service("moved", nil, m.first)
	again := laneName("moved", m.first) + " (2)"
	r.attempted(again)
	r.goesOn(20)
	report := r.report(analysis.Fail)
	if l := lanesOf(report)[again]; l.Attempts == 0 || l.Dropped != l.Attempts {
		m.t.Errorf("lane to the address that came back: %d attempts, %d dropped", l.Attempts, l.Dropped)
	}
	return report
}

// An address that was measured, and is dead when it comes back, is measured again: its loss is no wait for a first answer.
func TestAnAddressThatComesBackDead(t *testing.T) {
	t.Parallel()
	m := newMovedService(t)
	report := m.comesBackDead(m.measuredAway())
	for _, name := range []string{laneName("web", m.web), laneName("moved", m.next)} {
		if l := lanesOf(report)[name]; l.Attempts == 0 || l.Dropped > 0 {
			t.Errorf("lane %s: %d attempts, %d dropped", name, l.Attempts, l.Dropped)
		}
	}
}

// An address that comes back just before the end is no part of the measurement, and the report says so.
func TestAnAddressThatComesBackAtTheEnd(t *testing.T) {
	t.Parallel()
	m := newMovedService(t)
	r := m.start(m.options())
	r.attempted(laneName("moved", m.first))
	m.remove("Service", "moved")
	r.recorded("the Service shop/moved was deleted")
	m.server.close()
	m.service("moved", nil, m.first)
	r.recorded("the Service shop/moved appeared")
	r.goesOn(20)
	report := r.report(analysis.Pass)
	if text := strings.Join(report.Reasons, "\n"); !strings.Contains(text, laneName("moved", m.first)+" was skipped: it came back") {
		t.Errorf("the reasons do not name the address that came back:\n%s", text)
	}
}

// A Service whose address changes before its first attempt is not measured there, and the watch remains valid.
func TestAddressThatChangesAtOnce(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	a, b, c := testfiles.Loopback(t), testfiles.Loopback(t), testfiles.Loopback(t)
	for _, each := range []string{a, b, c} {
		listen(t, each)
	}
	s.service("web", nil, a)
	r := s.start(s.options())
	s.service("late", nil, b)
	r.recorded("lane " + laneName("late", b) + ":")
	s.service("late", nil, c)
	r.attempted(laneName("late", c))
	r.goesOn(20)
	report := r.report(analysis.Pass)
	if l, has := lanesOf(report)[laneName("late", b)]; !has || l.Attempts == 0 && !strings.Contains(strings.Join(report.Reasons, "\n"), laneName("late", b)+" was skipped") {
		t.Errorf("lane %s: %+v, %q", laneName("late", b), l, report.Reasons)
	}
}

// A listener that is away for a second is found, with its bounds, and with the endpoint's change as its cause.
func TestLossHasItsBoundsAndItsCause(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	a := testfiles.Loopback(t)
	l := listen(t, a)
	s.service("web", nil, a)
	s.endpoint("web", true)
	r := s.start(s.options())
	r.recorded("shop/web-pod")
	r.goesOn(20)
	s.endpoint("web", false)
	r.recorded("is unready")
	closed := time.Now()
	l.close()
	r.loses(toldWithin)
	listen(t, a)
	away := time.Since(closed)
	s.endpoint("web", true)
	r.goesOn(20)
	report := r.report(analysis.Fail)
	outages := report.AllOutages()
	if len(outages) != 1 || outages[0].Classes["refused"] == 0 {
		t.Fatalf("%+v", outages)
	}
	o := outages[0]
	if ms := float64(away.Microseconds()) / 1e3; o.LowerMs > ms || o.UpperMs < 1000 {
		t.Errorf("the listener was away for %.1f ms, and the bounds are %.1f to %.1f ms", ms, o.LowerMs, o.UpperMs)
	}
	if o.Cause.Event != "endpoint unready" || !strings.Contains(o.Cause.Text, "shop/web-pod") {
		t.Errorf("the cause is %+v", o.Cause)
	}
}

// The red twin of a cause: the endpoint of another Service explains nothing.
func TestAnotherServiceExplainsNothing(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	a, b := testfiles.Loopback(t), testfiles.Loopback(t)
	l := listen(t, a)
	listen(t, b)
	s.service("web", nil, a)
	s.service("other", nil, b)
	s.endpoint("other", true)
	r := s.start(s.options())
	r.recorded("shop/other-pod")
	s.endpoint("other", false)
	r.recorded("is unready")
	l.close()
	r.goesOn(20)
	listen(t, a)
	r.goesOn(40)
	report := r.report(analysis.Fail)
	if all := report.AllOutages(); len(all) != 1 || all[0].Lane != laneName("web", a) || all[0].Cause.Event != "" {
		t.Errorf("%+v, want one outage without a cause", all)
	}
}

// A loss within the last second before the API shows the deletion of its Service is excused: the load balancer knew earlier. What was lost
// before that second is not, and has the deletion as its cause.
func TestLossBeforeADeletion(t *testing.T) {
	for name, c := range map[string]struct {
		loses func(*running)
		want  analysis.Verdict
	}{
		"just before": {func(r *running) { r.loses(toldWithin / 4) }, analysis.Pass},
		"long before": {func(r *running) { r.loses(2 * toldWithin) }, analysis.Fail},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStand(t)
			a, b := testfiles.Loopback(t), testfiles.Loopback(t)
			l := listen(t, a)
			listen(t, b)
			s.service("gone", nil, a)
			s.service("web", nil, b)
			r := s.start(s.options())
			r.goesOn(20)
			closed := time.Now()
			l.close()
			c.loses(r)
			s.remove("Service", "gone")
			if took := time.Since(closed); c.want == analysis.Pass && took > toldWithin*3/4 {
				t.Skipf("the machine is too busy to delete a Service within a second: %v", took)
			}
			r.recorded("the Service shop/gone was deleted")
			r.goesOn(20)
			report := r.report(c.want)
			r.excusedToTheEnd()
			all := report.AllOutages()
			if c.want == analysis.Fail && (len(all) != 1 || all[0].Lane != laneName("gone", a) || all[0].Cause.Event != "service deleted") {
				t.Errorf("%+v, want one outage, by the deletion", all)
			}
			if excused := report.ExcusedAttempts(); excused == 0 || c.want == analysis.Pass && excused != report.Totals.Dropped {
				t.Errorf("%d of %d lost connections are excused", excused, report.Totals.Dropped)
			}
		})
	}
}

// Nobody sees which Services appear while the API server no longer accepts the credentials, or the user no longer has the right to list
// them. Such a watch is no pass, also if it may list them again.
func TestRevokedCredentialsAreNoPass(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		back   bool
	}{
		"credentials that expire":      {http.StatusUnauthorized, false},
		"rights that are revoked":      {http.StatusForbidden, false},
		"credentials that are renewed": {http.StatusUnauthorized, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStand(t)
			a := testfiles.Loopback(t)
			listen(t, a)
			s.service("web", nil, a)
			r := s.start(s.options())
			r.goesOn(10)
			s.revoked.Store(int32(c.status))
			s.api.CloseClientConnections()
			s.service("late", nil, testfiles.Loopback(t))
			r.recorded("the API server refuses to list the Services")
			if c.back {
				s.revoked.Store(0)
				r.recorded("the API server refused to list the Services")
			}
			report := r.report(analysis.Invalid)
			if text := strings.Join(report.Reasons, "\n"); !strings.Contains(text, "the API server refused to list the Services, so nobody knows which existed") {
				t.Errorf("the reasons lack the refusal:\n%s", text)
			}
			if !slices.ContainsFunc(r.said, func(line string) bool { return strings.Contains(line, "refuses to list the Services") }) {
				t.Errorf("nobody was told: %q", r.said)
			}
		})
	}
}

// A look-up that ends after its lane says nothing about the next lane to the same name, nor about a Service that is gone.
func TestLateLookUpEndsNoOtherLane(t *testing.T) {
	e := cluster.External{Service: "shop/web", Host: "web.example", Number: 80}
	lane := func(address string) target {
		return target{External: e, lane: probes.Lane{Name: e.String(), Target: netip.MustParseAddrPort(address)}}
	}
	w := &watcher{lanes: newLanes(), services: &services{waiting: map[cluster.External]*waiting{}}}
	f := &follower{watcher: w}
	old, next := lane("192.0.2.1:80"), lane("192.0.2.2:80")
	late := func(when string) {
		t.Helper()
		if err := f.lookedUp(answer{target: old, addresses: map[netip.Addr]bool{next.lane.Target.Addr(): true}}); err != nil {
			t.Fatal(err)
		}
		if len(w.services.waiting) > 0 {
			t.Errorf("%s, its target waits for an answer", when)
		}
	}
	w.lanes.add(&old)
	w.lanes.remove(e)
	late("after its Service is gone")
	w.lanes.add(&next)
	late("after another lane began")
	if !w.lanes.runs(next) {
		t.Error("the next lane has ended")
	}
}

// A target for whose lane no id is left is refused, with a reason in the record. The watch goes on.
func TestNoIDIsLeft(t *testing.T) {
	t.Parallel()
	writer, err := record.NewHistoryWriter(t.TempDir(), record.Run{})
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	e := cluster.External{Service: "shop/web", Host: "192.0.2.1", Number: 80}
	w := &watcher{record: writer, meter: &session.Meter{}, lanes: newLanes(), services: &services{waiting: map[cluster.External]*waiting{e: {}}}}
	f := &follower{watcher: w}
	for _, protocol := range []string{probes.ProtocolTCPDial, probes.ProtocolTCPLong} {
		lane := probes.Lane{Name: e.String(), Target: netip.MustParseAddrPort("192.0.2.1:80"), Protocol: protocol, Rate: 10}
		last := uint16(math.MaxUint16)
		if lane.KeepsConnections() {
			last-- // the lane needs two
		}
		wait := &waiting{}
		w.services.waiting[e], w.lanes.last = wait, last
		if err := f.answered(answer{target: target{External: e, lane: lane}}); err != nil {
			t.Fatal(err)
		}
		if !wait.refused || wait.reason == "" || w.services.waiting[e] == nil || w.lanes.last != last || len(w.lanes.all()) > 0 {
			t.Errorf("a %s lane after id %d: %+v", protocol, last, *wait)
		}
		w.lanes.last--
		if why := w.lanes.room(lane); why != "" {
			t.Errorf("a %s lane after id %d: %s", protocol, w.lanes.last, why)
		}
	}
	delete(w.services.waiting, e)
	w.o.Protocol, w.lanes.last, w.lanes.before[e.String()] = probes.ProtocolTCPDial, math.MaxUint16, record.LeftLane{}
	if err := w.goOnAt(e, false); err != nil {
		t.Fatal(err)
	}
	if wait := w.services.waiting[e]; wait == nil || !wait.refused {
		t.Errorf("after a kill: %+v", wait)
	}
}

// The API goes away: probes go on, the record says from when to when, and a Service that is deleted meanwhile is seen afterwards.
func TestAPIOutageIsRecorded(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	a, b := testfiles.Loopback(t), testfiles.Loopback(t)
	listen(t, a)
	l := listen(t, b)
	s.service("web", nil, a)
	s.service("gone", nil, b)
	r := s.start(s.options())
	r.goesOn(10)
	s.away.Store(true)
	s.api.CloseClientConnections()
	l.close()
	s.remove("Service", "gone")
	r.goesOn(60)
	s.away.Store(false)
	r.recorded("the API server answers again")
	r.recorded("the Service shop/gone was deleted")
	r.goesOn(10)
	report := r.report(analysis.Fail)
	var states []string
	for _, e := range report.Events {
		if e.Kind == "api" {
			states = append(states, e.Text)
		}
	}
	if len(states) != 2 || !strings.Contains(states[0], "did not answer for") {
		t.Errorf("the events of the API are %q", states)
	}
	lanes := lanesOf(report)
	if web := lanes[laneName("web", a)]; web.Dropped > 0 || web.Attempts < 60 {
		t.Errorf("%d of %d attempts were dropped while the API was away", web.Dropped, web.Attempts)
	}
	for _, o := range lanes[laneName("gone", b)].Outages {
		if o.Cause.Event != "service deleted" {
			t.Errorf("%+v, want the deletion as its cause", o)
		}
	}
}
