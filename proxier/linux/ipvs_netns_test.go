//go:build netns

package linux

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/moby/ipvs"
	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/proxier/kernel"
)

// openIPVSKernel opens a Kernel in the test's namespace, or skips where the kernel has no IPVS.
func openIPVSKernel(t *testing.T) *Kernel {
	t.Helper()
	k, err := Open(Options{Scheduler: "rr", NoReply: func(table string) { t.Errorf("a reply from %s is missing", table) }})
	if err != nil && strings.Contains(err.Error(), "has no IPVS") {
		t.Skipf("no IPVS in this kernel: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	return k
}

func apply(t *testing.T, k *Kernel, ops ...kernel.Op) {
	t.Helper()
	for _, op := range ops {
		if err := k.Apply(op); err != nil {
			t.Fatalf("%v: %v", op, err)
		}
	}
}

var (
	vip     = kernel.Key{Addr: netip.MustParseAddr("10.96.0.10"), Protocol: kernel.TCP, Port: 80}
	backend = netip.MustParseAddrPort("198.51.100.2:8080")
)

func TestVirtualServers(t *testing.T) {
	inNamespace(t)
	k := openIPVSKernel(t)
	read := func(what string, exists bool, want kernel.Server) {
		t.Helper()
		got, found, err := k.Server(vip)
		if err != nil || found != exists || got.Virtual != want.Virtual || !slices.Equal(got.Reals, want.Reals) {
			t.Errorf("%s: found %v %+v, error %v; want %v %+v", what, found, got, err, exists, want)
		}
	}
	read("at first", false, kernel.Server{})
	rr := kernel.Virtual{Key: vip, Scheduler: "rr"}
	apply(t, k, kernel.AddVirtual{Virtual: rr})
	read("added", true, kernel.Server{Virtual: rr})
	if err := k.Apply(kernel.AddVirtual{Virtual: rr}); !errors.Is(err, kernel.ErrExists) {
		t.Errorf("added twice: %v, want %v", err, kernel.ErrExists)
	}
	apply(t, k, kernel.AddReal{Key: vip, Real: backend, Weight: 1})
	read("with a real server", true, kernel.Server{Virtual: rr, Reals: []kernel.Real{{Addr: backend, Weight: 1}}})
	if err := k.Apply(kernel.AddReal{Key: vip, Real: backend, Weight: 1}); !errors.Is(err, unix.EEXIST) {
		t.Errorf("real server added twice: %v", err)
	}
	apply(t, k, kernel.SetWeight{Key: vip, Real: backend, Weight: 0})
	read("at weight 0", true, kernel.Server{Virtual: rr, Reals: []kernel.Real{{Addr: backend, Weight: 0}}})
	sticky := kernel.Virtual{Key: vip, Scheduler: "rr", Affinity: 3 * time.Hour}
	apply(t, k, kernel.UpdateVirtual{Virtual: sticky})
	read("with affinity", true, kernel.Server{Virtual: sticky, Reals: []kernel.Real{{Addr: backend, Weight: 0}}})
	other := kernel.Key{Addr: vip.Addr, Protocol: kernel.UDP, Port: 53}
	apply(t, k, kernel.AddVirtual{Virtual: kernel.Virtual{Key: other, Scheduler: "rr"}})
	if all, err := k.Servers(); err != nil || len(all) != 2 {
		t.Errorf("all are %+v, error %v, want two", all, err)
	}
	for range 2 { // the second time it is gone already
		apply(t, k, kernel.DeleteReal{Key: vip, Real: backend})
	}
	read("without the real server", true, kernel.Server{Virtual: sticky})
	for range 2 {
		apply(t, k, kernel.DeleteVirtual{Key: vip})
	}
	read("deleted", false, kernel.Server{})
	if err := k.Apply(kernel.AddReal{Key: vip, Real: backend, Weight: 1}); !errors.Is(err, unix.ESRCH) {
		t.Errorf("a real server without a virtual server: %v", err)
	}
}

// The probe creates and deletes a virtual server with a firewall mark. It removes the leftover of a crashed process,
// touches no foreign one, and no Service affects it.
func TestProbeDeletesOnlyItsOwnServer(t *testing.T) {
	inNamespace(t)
	k := openIPVSKernel(t)
	for _, family := range []uint16{unix.AF_INET, unix.AF_INET6} {
		add := func(s *ipvs.Service) {
			t.Helper()
			if err := k.ipvs.handle.do("making one", func(h ipvsHandle) error { return h.NewService(s) }); err != nil {
				t.Fatal(err)
			}
		}
		there := func() (*ipvs.Service, error) {
			return call(k.ipvs.handle, "reading it", func(h ipvsHandle) (*ipvs.Service, error) { return h.GetService(probeService(family, "rr")) })
		}
		add(probeService(family, "wrr"))
		if err := k.ipvs.probe(family, "rr"); err != nil {
			t.Errorf("family %d: with a leftover: %v", family, err)
		}
		if s, err := there(); !errors.Is(err, unix.ESRCH) {
			t.Errorf("family %d: after the probe it exists: %+v, error %v", family, s, err)
		}
		theirs := probeService(family, "wrr")
		theirs.Flags, theirs.Timeout = 0, 0
		add(theirs)
		if err := k.ipvs.probe(family, "rr"); err != nil {
			t.Errorf("family %d: with a foreign one: %v", family, err)
		}
		if s, err := there(); err != nil || s.SchedName != "wrr" {
			t.Errorf("family %d: the foreign one is %+v, error %v", family, s, err)
		}
	}
	if all, err := k.Servers(); err != nil || len(all) != 0 {
		t.Errorf("virtual servers with a mark are listed as Services: %v, error %v", all, err)
	}
}

// Cleanup removes everything of the proxier and nothing else.
func TestCleanup(t *testing.T) {
	r := newPath(t)
	k := openIPVSKernel(t)
	serve(t, k, kernel.FromNode)
	theirs := kernel.Virtual{Key: kernel.Key{Addr: vip.Addr, Protocol: kernel.TCP, Port: 443}, Scheduler: "wrr"}
	apply(t, k, kernel.AddVirtual{Virtual: theirs})
	if _, err := r.vip(t, successTimeout); err != nil {
		t.Fatal(err)
	}
	nft(t, "add", "table", "ip", "other")
	if n, err := k.Cleanup(nil); n != 1 || err != nil {
		t.Errorf("%d virtual servers, error %v", n, err)
	}
	all, err := k.Servers()
	if err != nil || len(all) != 1 || all[0].Virtual != theirs {
		t.Errorf("virtual servers %+v, error %v", all, err)
	}
	if _, err := k.addresses.netlink.LinkByName(Device); err == nil {
		t.Errorf("the device %s exists", Device)
	}
	if tables := nft(t, "list", "tables"); strings.Contains(tables, Table) || !strings.Contains(tables, "other") {
		t.Errorf("tables\n%s", tables)
	}
	if n, err := openIPVSKernel(t).Cleanup(nil); n != 0 || err != nil {
		t.Errorf("second Cleanup: %d virtual servers, error %v", n, err)
	}
}

func TestUnknownScheduler(t *testing.T) {
	inNamespace(t)
	openIPVSKernel(t).Close()
	if _, err := Open(Options{Scheduler: "nonsense"}); err == nil || !strings.Contains(err.Error(), "no scheduler") {
		t.Errorf("error %v, want one that names the scheduler", err)
	}
}

// serve programs a virtual server for the path's server.
func serve(t *testing.T, k *Kernel, set kernel.Set) {
	t.Helper()
	apply(t, k, kernel.ChangeSets{Add: []kernel.Element{{Set: set, Key: vip}}}, kernel.AddVirtual{Virtual: kernel.Virtual{Key: vip, Scheduler: "rr"}},
		kernel.AddReal{Key: vip, Real: backend, Weight: 1}, kernel.Bind{Addr: vip.Addr})
}

func (r testPath) vip(t *testing.T, timeout time.Duration) (net.Conn, error) {
	t.Helper()
	return r.dialTo(t, netip.AddrPortFrom(vip.Addr, vip.Port), timeout)
}

func TestConnectionsThroughIPVS(t *testing.T) {
	for _, test := range []struct {
		set                  kernel.Set
		fromClient, fromNode string
	}{
		{kernel.Masquerade, nodeByServer, nodeByServer},
		{kernel.FromNode, clientAddr, nodeByServer},
		{kernel.OffCluster, clientAddr, nodeByServer},
	} {
		t.Run(string(test.set), func(t *testing.T) {
			r := newPath(t)
			k := openIPVSKernel(t)
			serve(t, k, test.set)
			c, err := r.vip(t, successTimeout)
			if err != nil {
				t.Fatalf("from the client: %v", err)
			}
			if got := source(t, c); got != test.fromClient {
				t.Errorf("from the client: the server saw %s, want %s", got, test.fromClient)
			}
			c, err = net.DialTimeout("tcp", netip.AddrPortFrom(vip.Addr, vip.Port).String(), successTimeout)
			if err != nil {
				t.Fatalf("from the node: %v", err)
			}
			defer c.Close()
			if got := source(t, c); got != test.fromNode {
				t.Errorf("from the node: the server saw %s, want %s", got, test.fromNode)
			}
		})
	}
}

// A NodePort: a virtual server at a node address, from a client and from the node itself.
func TestNodePortThroughIPVS(t *testing.T) {
	for set, fromClient := range map[kernel.Set]string{kernel.Masquerade: nodeByServer, kernel.FromNode: clientAddr} {
		t.Run(string(set), func(t *testing.T) {
			r := newPath(t)
			k := openIPVSKernel(t)
			at := kernel.Key{Addr: netip.MustParseAddr(nodeByClient), Protocol: kernel.TCP, Port: 30080}
			apply(t, k, kernel.ChangeSets{Add: []kernel.Element{{Set: set, Key: at}}}, kernel.AddVirtual{Virtual: kernel.Virtual{Key: at, Scheduler: "rr"}},
				kernel.AddReal{Key: at, Real: backend, Weight: 1})
			c, err := r.dialTo(t, netip.AddrPortFrom(at.Addr, at.Port), successTimeout)
			if err != nil {
				t.Fatalf("from the client: %v", err)
			}
			if got := source(t, c); got != fromClient {
				t.Errorf("from the client: the server saw %s, want %s", got, fromClient)
			}
			c, err = net.DialTimeout("tcp", netip.AddrPortFrom(at.Addr, at.Port).String(), successTimeout)
			if err != nil {
				t.Fatalf("from the node: %v", err)
			}
			defer c.Close()
			if got := source(t, c); got != nodeByServer {
				t.Errorf("from the node: the server saw %s, want %s", got, nodeByServer)
			}
			if _, err := r.dialTo(t, netip.AddrPortFrom(at.Addr, at.Port+1), failureTimeout); !errors.Is(err, unix.ECONNREFUSED) {
				t.Errorf("another port of the node ended with %v, want refused", err)
			}
		})
	}
}

// The kernel behaviour that the proxier relies on: weight 0 keeps connections and accepts none, raising the weight is
// enough to reactivate a real server, a drop is silent, and deleting a real server ends its connections at once.
func TestConnectionLifecycleThroughIPVS(t *testing.T) {
	r := newPath(t)
	k := openIPVSKernel(t)
	serve(t, k, kernel.FromNode)
	old, err := r.vip(t, successTimeout)
	if err != nil {
		t.Fatal(err)
	}
	answers := func(when string) {
		t.Helper()
		if got := source(t, old); got != clientAddr {
			t.Errorf("%s the old connection replies %q", when, got)
		}
	}
	answers("at first")
	apply(t, k, kernel.SetWeight{Key: vip, Real: backend, Weight: 0})
	answers("at weight 0")
	if _, err := r.vip(t, failureTimeout); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("a new connection at weight 0 ended with %v, want refused", err)
	}
	apply(t, k, kernel.ChangeSets{Add: []kernel.Element{{Set: kernel.Drop, Key: vip}}})
	var timeout net.Error
	if _, err := r.vip(t, failureTimeout); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("a new connection that is dropped ended with %v, want a time-out", err)
	}
	answers("while new ones are dropped")
	apply(t, k, kernel.SetWeight{Key: vip, Real: backend, Weight: 1}, kernel.ChangeSets{Remove: []kernel.Element{{Set: kernel.Drop, Key: vip}}})
	if _, err := r.vip(t, successTimeout); err != nil {
		t.Errorf("a new connection at weight 1: %v", err)
	}
	answers("at weight 1 again")
	if s, _, err := k.Server(vip); err != nil || len(s.Reals) != 1 || s.Reals[0].Active < 1 {
		t.Errorf("the kernel counts %+v, error %v, want active connections", s.Reals, err)
	}
	apply(t, k, kernel.SetWeight{Key: vip, Real: backend, Weight: 0}, kernel.DeleteReal{Key: vip, Real: backend})
	if err := untilError(old); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("after its real server was deleted the old connection ended with %v, want a reset", err)
	}
}

// A pod that reaches itself through its own Service.
func TestHairpinThroughIPVS(t *testing.T) {
	r := newPath(t)
	k := openIPVSKernel(t)
	serve(t, k, kernel.FromNode)
	target := netip.AddrPortFrom(vip.Addr, vip.Port)
	if _, err := dialFrom(t, r.server, target, failureTimeout); err == nil {
		t.Error("the pod reached itself without the hairpin set, so the test proves nothing")
	}
	apply(t, k, kernel.ChangeSets{Add: []kernel.Element{{Set: kernel.Hairpin, Key: kernel.Key{Addr: backend.Addr()}}}})
	c, err := dialFrom(t, r.server, target, successTimeout)
	if err != nil {
		t.Fatal(err)
	}
	if got := source(t, c); got != nodeByServer {
		t.Errorf("the pod saw %s, want %s", got, nodeByServer)
	}
}

// Eight busy connections while their real server flaps: changes of weight cut none. Deleting and adding it, as
// kube-proxy does (kubernetes#117205), is the red twin and must cut some.
func TestBusyConnectionsAndFlaps(t *testing.T) {
	weight := func(w int) kernel.Op { return kernel.SetWeight{Key: vip, Real: backend, Weight: w} }
	for _, test := range []struct {
		name       string
		back       []kernel.Op
		wantLosses bool
	}{
		{"by weight", []kernel.Op{weight(1)}, false},
		{"by delete and add", []kernel.Op{kernel.DeleteReal{Key: vip, Real: backend}, kernel.AddReal{Key: vip, Real: backend, Weight: 1}}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newPath(t)
			k := openIPVSKernel(t)
			serve(t, k, kernel.FromNode)
			stop := make(chan struct{})
			lost, answered := eightBusy(t, r, stop)
			for flaps := 0; flaps < 200 || !test.wantLosses && answered.Load() < enough && flaps < 2000; flaps++ {
				for _, op := range append([]kernel.Op{weight(0)}, test.back...) {
					apply(t, k, op)
					time.Sleep(time.Millisecond) // the same rate for both
				}
			}
			close(stop)
			losses := lost()
			t.Logf("%d of 8 connections lost, %d requests answered", losses, answered.Load())
			if (losses > 0) != test.wantLosses {
				t.Errorf("%d of 8 connections lost in flaps; losses expected: %v", losses, test.wantLosses)
			}
			if !test.wantLosses && answered.Load() < enough {
				t.Errorf("only %d requests were answered, so the test proves nothing", answered.Load())
			}
		})
	}
}

// enough is the number of requests that must be answered where no connection may be lost.
const enough = 50

// eightBusy opens eight connections through the virtual address and keeps them busy until stop. lost waits for their
// end and returns how many were lost. answered is the number of their answers so far.
func eightBusy(t *testing.T, r testPath, stop <-chan struct{}) (lost func() int, answered *atomic.Int64) {
	t.Helper()
	answered = new(atomic.Int64)
	ends := make(chan bool, 8)
	for range 8 {
		c, err := r.vip(t, successTimeout)
		if err != nil {
			t.Fatal(err)
		}
		go func() { ends <- busy(c, stop, answered) }()
	}
	return func() (n int) {
		for range 8 {
			if <-ends {
				n++
			}
		}
		return n
	}, answered
}

// busy sends requests until stop, counts the answers, and reports whether the connection was lost.
func busy(c net.Conn, stop <-chan struct{}, answered *atomic.Int64) bool {
	answer := make([]byte, 64)
	for {
		select {
		case <-stop:
			return false
		default:
		}
		if c.SetDeadline(time.Now().Add(2*time.Second)) != nil {
			return true
		}
		if _, err := c.Write([]byte{'?'}); err != nil {
			return true
		}
		if _, err := c.Read(answer); err != nil {
			return true
		}
		answered.Add(1)
	}
}

// untilError sends requests on a connection until one fails.
func untilError(c net.Conn) error {
	answer := make([]byte, 64)
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); {
		if err := c.SetDeadline(time.Now().Add(2 * time.Second)); err != nil {
			return err
		}
		if _, err := c.Write([]byte{'?'}); err != nil {
			return err
		}
		if _, err := c.Read(answer); err != nil {
			return err
		}
	}
	return fmt.Errorf("the connection still replies")
}

// Opening a kernel adopts the state of an old process unchanged.
func TestOpenAdopts(t *testing.T) {
	r := newPath(t)
	serve(t, openIPVSKernel(t), kernel.FromNode)
	old, err := r.vip(t, successTimeout)
	if err != nil {
		t.Fatal(err)
	}
	source(t, old)
	k := openIPVSKernel(t)
	servers, err := k.Servers()
	if err != nil || len(servers) != 1 || servers[0].Key != vip || len(servers[0].Reals) != 1 {
		t.Errorf("servers %+v, error %v", servers, err)
	}
	addrs, err := k.Addresses()
	if err != nil || !slices.Equal(addrs.Bound, []netip.Addr{vip.Addr}) || slices.Contains(addrs.Node, vip.Addr) {
		t.Errorf("addresses %+v, error %v", addrs, err)
	}
	if all, err := k.Elements(); err != nil || !slices.Equal(all, []kernel.Element{{Set: kernel.FromNode, Key: vip}}) {
		t.Errorf("elements %v, error %v", all, err)
	}
	if got := source(t, old); got != clientAddr {
		t.Errorf("the old connection replies %q", got)
	}
}

// A thousand virtual servers are read back as they were added. The log has the times.
func TestManyVirtualServers(t *testing.T) {
	inNamespace(t)
	k := openIPVSKernel(t)
	const n = 1000
	want := map[kernel.Key]kernel.Server{}
	begin := time.Now()
	for i := range n {
		v := kernel.Virtual{Key: kernel.Key{Addr: netip.AddrFrom4([4]byte{10, 96, byte(i / 250), byte(i % 250)}), Protocol: kernel.TCP, Port: 80}, Scheduler: "rr"}
		s := kernel.Server{Virtual: v}
		apply(t, k, kernel.AddVirtual{Virtual: v})
		for pod := range 4 {
			real := kernel.Real{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 244, byte(pod), byte(i % 250)}), uint16(1000+i)), Weight: pod}
			apply(t, k, kernel.AddReal{Key: v.Key, Real: real.Addr, Weight: real.Weight})
			s.Reals = append(s.Reals, real)
		}
		apply(t, k, kernel.Bind{Addr: v.Key.Addr})
		want[v.Key] = s
	}
	added := time.Since(begin)
	begin = time.Now()
	all, err := k.Servers()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d virtual servers with 4 real servers each: added in %v, read in %v", n, added, time.Since(begin))
	got := map[kernel.Key]kernel.Server{}
	for _, s := range all {
		slices.SortFunc(s.Reals, func(a, b kernel.Real) int { return a.Addr.Compare(b.Addr) })
		got[s.Key] = s
	}
	if len(all) != n || len(got) != n {
		t.Errorf("%d virtual servers were read back, %d different ones, want %d", len(all), len(got), n)
	}
	for key, s := range want {
		if got[key].Virtual != s.Virtual || !slices.Equal(got[key].Reals, s.Reals) {
			t.Fatalf("%v was read back with scheduler %q and %+v, want %q and %+v", key, got[key].Scheduler, got[key].Reals, s.Scheduler, s.Reals)
		}
	}
}
