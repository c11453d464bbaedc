//go:build netns

package engine

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"testing"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"pgregory.net/rapid"

	"github.com/hitless/hitless/proxier/fake"
	"github.com/hitless/hitless/proxier/kernel"
	"github.com/hitless/hitless/proxier/linux"
)

// These tests need a kernel with IPVS, and root over it: go test -tags lab ./suites/proxier

// TestMain runs only the tests that need a real kernel.
func TestMain(m *testing.M) {
	flag.Parse()
	if run := flag.Lookup("test.run"); run.Value.String() == "" {
		if err := run.Value.Set("OnTheRealKernel"); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// mirror applies to a real kernel what is applied to the fake. After each operation both must hold the same state, so
// that checks on the fake hold for the real kernel. The engine reads the real kernel, except for connection counts.
type mirror struct {
	t    failer
	fake *fake.Kernel
	real *linux.Kernel
	home netns.NsHandle
	own  netns.NsHandle
}

// newMirror creates both kernels, the real one in a new network namespace, and moves the thread there.
func newMirror(t failer) *mirror {
	runtime.LockOSThread()
	m := &mirror{t: t, fake: fake.New(nodeAddrs...)}
	var err error
	if m.home, err = netns.Get(); err == nil {
		m.own, err = netns.New()
	}
	m.must("creating a network namespace", err)
	m.must("adding the node addresses", giveAddresses())
	m.real, err = linux.Open(linux.Options{Scheduler: "rr", NoReply: func(table string) { t.Fatalf("a reply from %s is missing", table) }})
	m.must("opening the kernel", err)
	return m
}

func giveAddresses() error {
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	eth0 := &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}}
	if err == nil {
		err = netlink.LinkAdd(eth0)
	}
	for _, a := range nodeAddrs {
		if err == nil {
			err = netlink.AddrAdd(eth0, &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}})
		}
	}
	if err == nil {
		err = netlink.LinkSetUp(eth0)
	}
	return err
}

func (m *mirror) close() {
	m.real.Close()
	m.must("going back", netns.Set(m.home))
	m.must("closing namespaces", errors.Join(m.own.Close(), m.home.Close()))
	runtime.UnlockOSThread()
}

func (m *mirror) must(what string, err error) {
	if err != nil {
		m.t.Fatalf("%s: %v", what, err)
	}
}

// Apply implements kernel.Kernel.
func (m *mirror) Apply(op kernel.Op) error { return m.ApplyAll([]kernel.Op{op})[0] }

// ApplyAll implements kernel.Batcher. The results must agree, except that an operation with a lost reply takes
// effect, and that the real kernel may ignore an operation that the fake rejects as invalid.
func (m *mirror) ApplyAll(ops []kernel.Op) []error {
	var take []kernel.Op
	errs := m.fake.ApplyAll(ops)
	for i, op := range ops {
		switch {
		case errs[i] == nil || errors.Is(errs[i], kernel.ErrNoReply):
			take = append(take, op)
		case !errors.Is(errs[i], fake.ErrInjected):
			_ = m.real.Apply(op)
		}
	}
	if len(take) > 0 {
		for i, err := range m.real.ApplyAll(take) {
			m.must(fmt.Sprintf("the real kernel rejected %v, which the fake accepted", take[i]), err)
		}
	}
	for _, op := range ops {
		m.compareAfter(op)
	}
	return errs
}

func (m *mirror) applyExternally(ops ...kernel.Op) {
	for _, op := range ops {
		m.must(op.String(), m.real.Apply(op))
	}
}

func (m *mirror) flush() {
	conn, err := nftables.New()
	m.must("opening nftables", err)
	conn.FlushRuleset()
	m.must("flushing the ruleset", conn.Flush())
}

// compareAfter compares the virtual server of an operation.
func (m *mirror) compareAfter(op kernel.Op) {
	key, one := kernel.KeyOf(op)
	if !one {
		return // sets and addresses are compared as a whole in each pass
	}
	want, exists := m.fakeServer(key)
	got, found, err := m.real.Server(key)
	m.must("reading "+key.String(), err)
	if found != exists || found && formatServer(got) != formatServer(want) {
		m.t.Fatalf("after %v the fake has %v, %s; the real kernel %v, %s", op, exists, formatServer(want), found, formatServer(got))
	}
}

// fakeServer returns a virtual server of the fake, regardless of faults.
func (m *mirror) fakeServer(key kernel.Key) (kernel.Server, bool) {
	v, exists := m.fake.State().Virtual(key)
	return kernel.Server{Virtual: v, Reals: m.fake.State().Reals(key)}, exists
}

// formatServer prints a virtual server without its counts.
func formatServer(s kernel.Server) string {
	reals := slices.SortedFunc(slices.Values(s.Reals), func(a, b kernel.Real) int { return a.Addr.Compare(b.Addr) })
	out := fmt.Sprintf("%v %s %v %v", s.Key, s.Scheduler, s.Affinity, s.ForeignFlags)
	for _, r := range reals {
		out += fmt.Sprintf(" %v=%d", r.Addr, r.Weight)
	}
	return out
}

func (m *mirror) compare() {
	state := m.fake.State()
	servers, err := m.real.Servers()
	m.must("reading virtual servers", err)
	var got, want []string
	for _, s := range servers {
		got = append(got, formatServer(s))
	}
	for _, key := range state.Keys() {
		s, _ := m.fakeServer(key)
		want = append(want, formatServer(s))
	}
	m.compareSets("virtual servers", got, want)
	addrs, err := m.real.Addresses()
	m.must("reading addresses", err)
	m.compareSets("addresses", sortedStrings(addrs.Bound), sortedStrings(state.Addresses()))
	elements, err := m.real.Elements()
	m.must("reading elements", err)
	m.compareSets("elements", sortedStrings(elements), sortedStrings(state.Elements()))
}

func sortedStrings[T fmt.Stringer](all []T) (texts []string) {
	for _, v := range all {
		texts = append(texts, v.String())
	}
	return texts
}

func (m *mirror) compareSets(what string, got, want []string) {
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		m.t.Fatalf("%s of the real kernel %v; of the fake %v", what, got, want)
	}
}

// Servers implements kernel.Kernel.
func (m *mirror) Servers() ([]kernel.Server, error) {
	if _, err := m.fake.Servers(); err != nil {
		return nil, err
	}
	all, err := m.real.Servers()
	for i := range all {
		m.addCounts(&all[i])
	}
	return all, err
}

// Server implements kernel.Kernel.
func (m *mirror) Server(key kernel.Key) (kernel.Server, bool, error) {
	if _, _, err := m.fake.Server(key); err != nil {
		return kernel.Server{}, false, err
	}
	s, exists, err := m.real.Server(key)
	m.addCounts(&s)
	return s, exists, err
}

// addCounts sets the connection counts of the history.
func (m *mirror) addCounts(s *kernel.Server) {
	known, _, _ := m.fake.Server(s.Key)
	for i, real := range s.Reals {
		for _, k := range known.Reals {
			if k.Addr == real.Addr {
				s.Reals[i].Active, s.Reals[i].Inactive = k.Active, k.Inactive
			}
		}
	}
}

// Addresses implements kernel.Kernel.
func (m *mirror) Addresses() (kernel.Addresses, error) {
	if _, err := m.fake.Addresses(); err != nil {
		return kernel.Addresses{}, err
	}
	return m.real.Addresses()
}

// Elements implements kernel.Kernel.
func (m *mirror) Elements() ([]kernel.Element, error) {
	if _, err := m.fake.Elements(); err != nil {
		return nil, err
	}
	return m.real.Elements()
}

// Scheduler implements kernel.Kernel.
func (m *mirror) Scheduler(name string) error {
	return cmp.Or(m.fake.Scheduler(name), m.real.Scheduler(name))
}

var (
	_ peer           = (*mirror)(nil)
	_ kernel.Batcher = (*mirror)(nil)
)

// realKernelHistories is the number of random histories on the real kernel, where each takes a thousand times as
// long.
const realKernelHistories = "40"

func TestHistoriesOnTheRealKernel(t *testing.T) {
	if err := flag.Set("rapid.checks", realKernelHistories); err != nil {
		t.Fatal(err)
	}
	operations := 0
	rapid.Check(t, func(t *rapid.T) {
		m := newMirror(t)
		defer m.close()
		runHistory(t, newRigOn(t, rapid.Bool().Draw(t, "single"), m.fake, m))
		operations += len(m.fake.Ops())
	})
	t.Logf("%d operations", operations)
}

// The process crashes at a sample of the lifecycle's operations; TestCrashAtEveryOperation covers all of them.
func TestCrashOnTheRealKernel(t *testing.T) {
	n := newRig(t, false).runLifecycle()
	for i := 0; i < n; i += 8 {
		t.Run(fmt.Sprintf("operation %d", i), func(t *testing.T) {
			m := newMirror(t)
			defer m.close()
			r := newRigOn(t, i%16 == 0, m.fake, m)
			m.fake.FailAt(i, fake.Crash)
			r.runLifecycle()
			if cut := m.fake.CutConnections(); cut > 0 {
				t.Errorf("%d connections were cut", cut)
			}
			r.finish()
		})
	}
}

// The mirror must detect a change of the real kernel alone.
func TestDisagreementOnTheRealKernel(t *testing.T) {
	for name, behind := range map[string]kernel.Op{
		"a virtual server": kernel.AddVirtual{Virtual: kernel.Virtual{Key: key("10.96.0.99", 80), Scheduler: "rr"}},
		"an address":       kernel.Bind{Addr: netip.MustParseAddr("10.96.0.99")},
		"an element":       kernel.ChangeSets{Add: []kernel.Element{{Set: kernel.Drop, Key: key("10.96.0.99", 80)}}},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMirror(t)
			defer m.close()
			m.compare()
			m.applyExternally(behind)
			notes := &recordingFailer{}
			m.t = notes
			m.compare()
			m.t = t
			if len(notes.all) == 0 {
				t.Errorf("%v was applied to the real kernel alone, but not detected", behind)
			}
		})
	}
}

// recordingFailer records failures and continues.
type recordingFailer struct{ all []string }

func (n *recordingFailer) Fatalf(format string, args ...any) {
	n.all = append(n.all, fmt.Sprintf(format, args...))
}
