//go:build linux

package bench

import (
	"context"
	"errors"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/lab/replay"
)

func TestPlanRoundTrip(t *testing.T) {
	want := Plan{Services: []int{100, 1000}, Repeat: 3}
	for _, text := range DefaultSubjects {
		s, err := ParseSubject(text)
		if err != nil || s.String() != text {
			t.Fatalf("%q was read as %q, %v", text, s, err)
		}
		want.Subjects = append(want.Subjects, s)
	}
	if got, err := ParsePlan(want.Parameters()); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("the decoded plan is %+v, %v", got, err)
	}
}

func TestInvalidPlans(t *testing.T) {
	for _, c := range []struct{ subjects, services, repeat, want string }{
		{"kube-proxy@v1.37.1/iptables", "100", "3", "cannot be read by the benchmark"},
		{"kube-proxy@v1.37.1/ipvs?minSync=one", "100", "3", `invalid duration "one"; give a duration`},
		{"kube-proxy@v1.37.1/ipvs?minSync=-1s", "100", "3", "-1s is negative"},
		{"bundled", "1000,100", "3", `"1000,100" Services: give ascending numbers`},
		{"bundled", "100,many", "3", `"100,many" Services: give ascending numbers`},
		{"bundled", "3", "3", `"3" Services: give ascending numbers`},
		{"kube-proxy@v1.37.1/ipvs,kube-proxy@v1.36.1/ipvs", "100", "3", "one version of kube-proxy"},
		{"", "100", "3", `subject ""`},
		{"bundled", "100", "0", `"0" times: give a number`},
		{"bundled", "100", "often", `"often" times: give a number`},
	} {
		_, err := ParsePlan(map[string]string{"subjects": c.subjects, "services": c.services, "repeat": c.repeat})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("subjects %q at %q Services %s times gave %v, want an error with %q", c.subjects, c.services, c.repeat, err, c.want)
		}
	}
}

// Addresses are unique: the kernel would serve a change with an old address before the write.
func TestAddressesAreUnique(t *testing.T) {
	f := newFleet(replay.New())
	if err := f.grow(20); err != nil {
		t.Fatal(err)
	}
	for i := range f.roll.pods {
		if err := f.replace(f.roll, i); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[netip.Addr]bool{}
	for _, v := range f.services() {
		for _, a := range append([]netip.Addr{v.addr}, v.pods...) {
			if seen[a] {
				t.Fatalf("%s is used twice", a)
			}
			seen[a] = true
		}
	}
	if n := rollout + 21 + 20*endpoints; len(seen) != n {
		t.Errorf("%d addresses, want %d", len(seen), n)
	}
}

// fakeProbe is a kernel that serves one Service more at each call of Changed.
type fakeProbe struct {
	changes int
	err     error
	after   bool // result of Changed once all are served
	checks  map[netip.AddrPort]int
}

func (p *fakeProbe) Changed() (bool, error) {
	p.changes++
	return p.changes <= 4 || p.after, p.err
}

func (p *fakeProbe) Serves(address netip.AddrPort, _ []netip.AddrPort) (bool, error) {
	p.checks[address]++
	return int(address.Addr().As4()[3]) < p.changes, nil
}

func (p *fakeProbe) Close() {}

func TestObserverEndsWhenAllAreServed(t *testing.T) {
	all := []*service{{addr: clusterIP(1)}, {addr: clusterIP(2)}, {addr: clusterIP(3)}}
	for _, after := range []bool{false, true} {
		p := &fakeProbe{after: after, checks: map[netip.AddrPort]int{}}
		ticks := time.Duration(0)
		o := observer{now: func() time.Duration { ticks += time.Second; return ticks }, alive: func() error { return nil }}
		took, err := o.wait(context.Background(), 0, p, all)
		// The clock was read at four checks, and once more when something changed during the last one.
		want := 4 * time.Second
		if after {
			want = 5 * time.Second
		}
		if err != nil || took != want {
			t.Errorf("it took %s, %v; want %s", took, err, want)
		}
		for _, v := range all {
			if n := p.checks[v.address()]; n > 2 {
				t.Errorf("%s was checked %d times", v.addr, n)
			}
		}
	}
}

func TestObserverErrors(t *testing.T) {
	never := []*service{{addr: clusterIP(250)}}
	dead, blind := errors.New("dead"), errors.New("blind")
	for name, c := range map[string]struct {
		probe *fakeProbe
		alive error
		want  string
	}{
		"the subject exits":         {&fakeProbe{checks: map[netip.AddrPort]int{}}, dead, "dead"},
		"the kernel gives an error": {&fakeProbe{checks: map[netip.AddrPort]int{}, err: blind}, nil, "blind"},
		"the time is over":          {&fakeProbe{checks: map[netip.AddrPort]int{}}, nil, "were not in the kernel"},
	} {
		ticks := time.Duration(0)
		o := observer{now: func() time.Duration { ticks += timeout; return ticks }, alive: func() error { return c.alive }}
		if _, err := o.wait(context.Background(), 0, c.probe, never); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTableOfRows(t *testing.T) {
	n := 2
	text := Markdown([]Row{
		{Subject: "bundled", MinSync: "default", Services: 100, ColdStartMs: 1234.5, EndpointChangeMs: 3.456, NetlinkMessages: &n, PeakMB: 40.2},
		{Subject: "kube-proxy@v1.37.1/ipvs", MinSync: "0s", Services: 100, ColdStartMs: 98765}})
	for _, want := range []string{"| 100 | bundled | 1.23 s |", "3.46 ms", "| 40 MB |", "| 2 |\n", "kube-proxy@v1.37.1/ipvs, min-sync-period 0s | 98.8 s", "| ? |\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("the table has no %q:\n%s", want, text)
		}
	}
}

func TestGate(t *testing.T) {
	two, many := 2, 661
	row := func(services int, changeMs, serviceMs float64, messages *int) Row {
		return Row{Subject: "bundled", MinSync: "default", Services: services, EndpointChangeMs: changeMs, EndpointChangeCPUMs: changeMs / 2,
			ServiceAddMs: serviceMs, NetlinkMessages: messages}
	}
	few := row(100, 2.8, 4, &two)
	if err := Gate([]Row{few, row(1000, 4, 4.4, &two)}, "bundled"); err != nil {
		t.Error(err)
	}
	for name, rows := range map[string][]Row{
		"grows in time":     {few, row(1000, 6, 4, &two)},
		"grows in messages": {few, row(1000, 2.8, 4, &many)},
		"is slow":           {row(100, 2.8, 40, &two), row(1000, 2.8, 40, &two)},
		"is not counted":    {few, row(1000, 2.8, 4, nil)},
		"is not there":      {few},
	} {
		if Gate(rows, "bundled") == nil {
			t.Errorf("a change that %s passed", name)
		}
	}
}
