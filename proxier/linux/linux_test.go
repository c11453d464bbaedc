package linux

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/nftables"
	"github.com/moby/ipvs"
	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/proxier/kernel"
)

// noReplyHandle is a handle whose reads get no reply until it is closed, as if another reader had taken it.
type noReplyHandle struct {
	ipvsHandle
	closed chan struct{}
}

func (d *noReplyHandle) GetServices() ([]*ipvs.Service, error) {
	<-d.closed
	return nil, os.ErrClosed
}

func (d *noReplyHandle) Close() { close(d.closed) }

// quickHandle replies at once.
type quickHandle struct{ ipvsHandle }

func (quickHandle) GetServices() ([]*ipvs.Service, error) { return []*ipvs.Service{{Port: 80}}, nil }
func (quickHandle) Close()                                {}

// kubernetes#71071: one missing reply must not block the proxier forever.
func TestMissingReplyReplacesHandle(t *testing.T) {
	first := &noReplyHandle{closed: make(chan struct{})}
	handles := []ipvsHandle{first, quickHandle{}}
	lost := 0
	h := &handle{deadline: 20 * time.Millisecond, noReply: func() { lost++ }, open: func() (ipvsHandle, error) {
		next := handles[0]
		handles = handles[1:]
		return next, nil
	}}
	if _, err := call(h, "listing", ipvsHandle.GetServices); !errors.Is(err, kernel.ErrNoReply) {
		t.Errorf("error %v, want %v", err, kernel.ErrNoReply)
	}
	select {
	case <-first.closed:
	case <-time.After(5 * time.Second):
		t.Error("the handle was not closed, so its reader waits forever")
	}
	h.deadline = time.Minute
	for range 2 {
		if got, err := call(h, "listing", ipvsHandle.GetServices); err != nil || len(got) != 1 {
			t.Errorf("with a new handle: %v, %v", got, err)
		}
	}
	if lost != 1 || len(handles) != 0 {
		t.Errorf("%d handles replaced and %d not opened, want 1 and 0", lost, len(handles))
	}
}

func TestHandleOpenError(t *testing.T) {
	h := &handle{deadline: time.Second, open: func() (ipvsHandle, error) { return nil, unix.EPERM }}
	if err := h.do("x", func(ipvsHandle) error { return nil }); !errors.Is(err, unix.EPERM) {
		t.Errorf("error %v, want %v", err, unix.EPERM)
	}
}

func TestServiceRoundTrip(t *testing.T) {
	for _, want := range []kernel.Virtual{
		{Key: kernel.Key{Addr: netip.MustParseAddr("10.96.0.1"), Protocol: kernel.TCP, Port: 443}, Scheduler: "rr"},
		{Key: kernel.Key{Addr: netip.MustParseAddr("fd00:96::1"), Protocol: kernel.UDP, Port: 53}, Scheduler: "rr"},
		{Key: kernel.Key{Addr: netip.MustParseAddr("10.96.0.2"), Protocol: kernel.TCP, Port: 80}, Scheduler: "mh", Affinity: 3 * time.Hour},
	} {
		s := toService(want)
		s.Flags |= hashed
		got, ok := fromService(s)
		if !ok || got != want {
			t.Errorf("%+v came back as %+v", want, got)
		}
	}
	if _, ok := fromService(&ipvs.Service{FWMark: 7, Address: net.IPv4zero.To4()}); ok {
		t.Error("a virtual server with a firewall mark was converted")
	}
}

// kube-proxy sets no flags for sh, and only the port flag for mh, so that new connections are refused if the hash
// selects a draining real server. Such flags must read as a difference.
func TestForeignFlags(t *testing.T) {
	const onePacket = 0x4
	for _, test := range []struct {
		scheduler string
		flags     uint32
		same      bool
	}{
		{"sh", 0x8, true}, {"sh", 0, false}, {"sh", 0x18, false}, {"mh", 0x18, true}, {"mh", 0x10, false}, {"rr", 0, true}, {"rr", onePacket, false},
	} {
		want := kernel.Virtual{Key: kernel.Key{Addr: netip.MustParseAddr("10.96.0.1"), Protocol: kernel.TCP, Port: 443}, Scheduler: test.scheduler}
		for _, want.Affinity = range []time.Duration{0, time.Hour} {
			s := toService(want)
			s.Flags = s.Flags&persistent | test.flags | hashed
			if got, ok := fromService(s); !ok || (got == want) != test.same {
				t.Errorf("%s with flags %#x reads as equal: %v, want %v", test.scheduler, s.Flags, got == want, test.same)
			}
		}
	}
}

func TestElementRoundTrip(t *testing.T) {
	for _, want := range []kernel.Element{
		{Set: kernel.Drop, Key: kernel.Key{Addr: netip.MustParseAddr("203.0.113.10"), Protocol: kernel.TCP, Port: 0x1f90}},
		{Set: kernel.Hairpin, Key: kernel.Key{Addr: netip.MustParseAddr("10.244.1.5")}},
		{Set: kernel.Allowed, Key: kernel.Key{Addr: netip.MustParseAddr("203.0.113.10"), Protocol: kernel.UDP, Port: 53}, Source: netip.MustParsePrefix("198.51.100.0/25")},
		{Set: kernel.Drop, Key: kernel.Key{Addr: netip.MustParseAddr("2001:db8::10"), Protocol: kernel.SCTP, Port: 0x1f90}},
		{Set: kernel.Hairpin, Key: kernel.Key{Addr: netip.MustParseAddr("fd00::5")}},
		{Set: kernel.Isolated, Key: kernel.Key{Addr: netip.MustParseAddr("203.0.113.10")}},
		{Set: kernel.Isolated, Key: kernel.Key{Addr: netip.MustParseAddr("fd00::6")}},
		{Set: kernel.Health, Key: kernel.Key{Addr: netip.MustParseAddr("203.0.113.10"), Protocol: kernel.TCP, Port: 32000}},
		{Set: kernel.Allowed, Key: kernel.Key{Addr: netip.MustParseAddr("2001:db8::10"), Protocol: kernel.TCP, Port: 80}, Source: netip.MustParsePrefix("fc00::/7")},
	} {
		family := ipv4
		if want.Key.Addr.Is6() {
			family = ipv6
		}
		got, err := family.decode(want.Set, encode(want))
		if err != nil || got != want {
			t.Errorf("%v came back as %v, %v", want, got, err)
		}
	}
	if _, err := ipv4.decode(kernel.Drop, nftables.SetElement{Key: make([]byte, 8)}); err == nil {
		t.Error("an element of another size was decoded")
	}
}

func TestSysctls(t *testing.T) {
	root := t.TempDir()
	s := sysctl{"net/ipv4/ip_forward", "1", "forwarding"}
	if err := s.set(root); err == nil {
		t.Error("a sysctl that does not exist was set")
	}
	path := filepath.Join(root, s.path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, before := range []string{"0\n", "1\n"} {
		if err := os.WriteFile(path, []byte(before), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := s.set(root); err != nil {
			t.Fatal(err)
		}
		if got, _ := os.ReadFile(path); got[0] != '1' {
			t.Errorf("before %q, now %q", before, got)
		}
	}
}

// IPv6 counts as supported only if the device accepts IPv6 addresses. The start enables them if it may write sysctls.
func TestDeviceWithoutIPv6(t *testing.T) {
	const readOnly = "/proc/sys/kernel/ngroups_max" // even for root
	for _, test := range []struct {
		what, value, link string
		served            bool
	}{
		{what: "enabled", value: "0\n", served: true},
		{what: "disabled", value: "1\n", served: true},
		{what: "disabled, sysctls read-only", link: readOnly},
		{what: "no such sysctl", served: true},
	} {
		proc := t.TempDir()
		path := filepath.Join(proc, "sys/net/ipv6/conf", Device, "disable_ipv6")
		err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.Mkdir(filepath.Join(proc, "net"), 0o755),
			os.WriteFile(filepath.Join(proc, "net/if_inet6"), nil, 0o644))
		switch {
		case test.link != "":
			err = errors.Join(err, os.Symlink(test.link, path))
		case test.value != "":
			err = errors.Join(err, os.WriteFile(path, []byte(test.value), 0o644))
		}
		if err != nil {
			t.Fatal(err)
		}
		k := &Kernel{ipvs: (&fakeHandle{servers: map[string]ipvs.Service{}}).virtualServers()}
		if err := k.checkIPv6(Options{ProcDir: proc, Scheduler: "rr"}); (err == nil) != test.served {
			t.Errorf("%s: error %v", test.what, err)
		}
		if got, err := os.ReadFile(path); test.value != "" && string(got[:1]) != "0" {
			t.Errorf("%s: disable_ipv6 is then %q (%v)", test.what, got, err)
		}
	}
}

func TestRequiredSysctls(t *testing.T) {
	for release, reuse := range map[string]bool{"4.19.0-27-amd64": true, "5.8.18": true, "5.9.0": false, "6.1.0-56-cloud-amd64": false,
		"5.10-rc1": false, "5.4-custom": true, "strange": false} {
		got := false
		for _, s := range requiredSysctls(release, false) {
			got = got || s.path == "net/ipv4/vs/conn_reuse_mode"
		}
		if got != reuse {
			t.Errorf("on %s conn_reuse_mode is set: %v, want %v", release, got, reuse)
		}
	}
	if diff := cmp.Diff(len(requiredSysctls("6.1", false))+2, len(requiredSysctls("6.1", true))); diff != "" {
		t.Errorf("strict ARP (-want +got):\n%s", diff)
	}
}

// An ipset is destroyed once the kernel has released it. The wait ends with its context, or after 10 s.
func TestRemovalOfAnIPSetThatIsUsed(t *testing.T) {
	for _, c := range []struct {
		what                string
		free, cancel, until time.Duration
		want                error
	}{
		{"free", 0, time.Hour, 0, nil},
		{"released later", time.Second, time.Hour, time.Second, nil},
		{"interrupted", time.Hour, 2 * time.Second, 2 * time.Second, context.Canceled},
		{"used for good", time.Hour, time.Hour, 10 * time.Second, unix.EBUSY},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			time.AfterFunc(c.cancel, cancel)
			begin := time.Now()
			err := removeSet(ctx, "KUBE-NODE-IP", func(string) error {
				if time.Since(begin) < c.free {
					return unix.EBUSY
				}
				return unix.ENOENT
			})
			if took := time.Since(begin); !errors.Is(err, c.want) || took < c.until || took > c.until+20*time.Millisecond {
				t.Errorf("%s: %v after %v, want %v after %v", c.what, err, took, c.want, c.until)
			}
		})
	}
}
