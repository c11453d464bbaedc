package proxier

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hitless/hitless/internal/testfiles"
	"github.com/hitless/hitless/proxier/desired"
	"github.com/hitless/hitless/proxier/engine"
	"github.com/hitless/hitless/proxier/fake"
	"github.com/hitless/hitless/proxier/kernel"
	"github.com/hitless/hitless/proxier/linux"
)

func TestInvalidMigrateFlags(t *testing.T) {
	for args, want := range map[string]string{
		"":                                   `--from is ""`,
		"--from=userspace":                   `--from is "userspace"`,
		"--from=ipvs --to=cilium":            `--to is "cilium"`,
		"--from=ipvs --to=nftables":          "must be bundled",
		"--from=bundled":                     "must be bundled",
		"--from=ipvs --config=/no/such/file": "--config",
		"--from=ipvs --log-format=xml":       "text or json",
	} {
		c := Command()
		c.SetArgs(append([]string{"migrate"}, strings.Fields(args)...))
		c.SetOut(&bytes.Buffer{})
		c.SetErr(&bytes.Buffer{})
		if err := c.ExecuteContext(context.Background()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("migrate %s: error %v, want one that contains %q", args, err, want)
		}
	}
}

// nodePortServices are two Services, one of them with a NodePort.
type nodePortServices struct{}

func (nodePortServices) Names() []types.NamespacedName {
	return []types.NamespacedName{{Name: "a"}, {Name: "b"}, {Name: "gone"}}
}
func (nodePortServices) Slices(types.NamespacedName) []*discovery.EndpointSlice { return nil }
func (nodePortServices) NodeAddresses() []netip.Addr                            { return nil }
func (nodePortServices) NodeZone() string                                       { return "" }
func (nodePortServices) Service(n types.NamespacedName) *v1.Service {
	ports := map[string][]v1.ServicePort{"a": {{Port: 80, NodePort: 30080}, {Port: 53, NodePort: 30053, Protocol: v1.ProtocolUDP}}, "b": {{Port: 80}}}
	if n.Name == "gone" {
		return nil
	}
	return &v1.Service{Spec: v1.ServiceSpec{Ports: ports[n.Name]}}
}

// All of kube-proxy's virtual servers are recognised, and none of other programs, not even at the port of a NodePort.
func TestKubeProxyServers(t *testing.T) {
	l := kubeProxyServers{device: []netip.Addr{netip.MustParseAddr("10.96.0.10"), netip.MustParseAddr("fd00:96::10")},
		node: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("10.244.1.254")}, ports: nodePortsOf(nodePortServices{})}
	for _, test := range []struct {
		addr     string
		protocol kernel.Protocol
		port     uint16
		want     bool
	}{
		{"10.96.0.10", kernel.TCP, 80, true}, {"10.96.0.10", kernel.TCP, 8443, true}, {"fd00:96::10", kernel.UDP, 53, true},
		{"192.0.2.1", kernel.TCP, 30080, true}, {"10.244.1.254", kernel.TCP, 30080, true}, {"192.0.2.1", kernel.UDP, 30053, true},
		{"192.0.2.1", kernel.UDP, 30080, false}, {"192.0.2.1", kernel.TCP, 80, false}, {"192.0.2.1", kernel.TCP, 0, false},
		{"203.0.113.99", kernel.TCP, 30080, false}, {"203.0.113.99", kernel.TCP, 0, false}, {"203.0.113.99", kernel.TCP, 80, false},
	} {
		k := kernel.Key{Addr: netip.MustParseAddr(test.addr), Protocol: test.protocol, Port: test.port}
		if got := l.contains(k); got != test.want {
			t.Errorf("%v belongs to kube-proxy: %v, want %v", k, got, test.want)
		}
	}
}

// Only the proxier and `migrate --to=bundled` know the flags that determine the rules; other commands keep existing
// rules.
func TestKeepRulesByCommand(t *testing.T) {
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	for _, test := range []struct {
		what            string
		m               migration
		keeps, readOnly bool
	}{
		{what: "the proxier"},
		{what: "--init-only", m: migration{settings: settings{initOnly: true}}, keeps: true},
		{what: "--cleanup", m: migration{settings: settings{cleanup: true}}, keeps: true},
		{what: "migrate to bundled", m: migration{from: "ipvs", to: bundled}},
		{what: "migrate to bundled --dry-run", m: migration{from: "ipvs", to: bundled, dryRun: true}, readOnly: true},
		{what: "migrate back", m: migration{from: bundled, to: "ipvs"}, keeps: true},
	} {
		test.m.log, test.m.detectLocal = log, "ClusterCIDR"
		options, err := test.m.settings.linuxOptions(nil, log)
		if test.m.to != "" {
			options, err = test.m.kernelOptions()
		}
		if err != nil || options.KeepRules != test.keeps || options.ReadOnly != test.readOnly {
			t.Errorf("%s: keeps the rules: %v, reads only: %v, error %v", test.what, options.KeepRules, options.ReadOnly, err)
		}
	}
}

// oneService is a Service with two endpoints, of which the kernel may reject one.
type oneService struct{}

func (oneService) Names() []types.NamespacedName { return []types.NamespacedName{web} }
func (oneService) NodeAddresses() []netip.Addr   { return nil }
func (oneService) NodeZone() string              { return "" }
func (oneService) Service(types.NamespacedName) *v1.Service {
	return &v1.Service{Spec: v1.ServiceSpec{ClusterIP: "10.96.0.10", Ports: []v1.ServicePort{{Port: 80}}}}
}
func (oneService) Slices(types.NamespacedName) []*discovery.EndpointSlice {
	port := int32(8080)
	return []*discovery.EndpointSlice{{AddressType: discovery.AddressTypeIPv4, Ports: []discovery.EndpointPort{{Port: &port}},
		Endpoints: []discovery.Endpoint{{Addresses: []string{"10.244.1.1"}}, {Addresses: []string{"10.244.1.255"}}}}}
}

// emptyList is a kernel whose first list of virtual servers is empty, as while another program deletes some.
type emptyList struct {
	kernel.Kernel
	listed bool
}

func (l *emptyList) Servers() ([]kernel.Server, error) {
	if !l.listed {
		l.listed = true
		return nil, nil
	}
	return l.Kernel.Servers()
}

// A migration fails on what may succeed later, and on a kernel that rejects everything, but not on single objects that
// the kernel rejects for good. A virtual server that the list lacks is adopted.
func TestMigrationProgramsServices(t *testing.T) {
	rejectAll := func(kernel.Op) error { return syscall.EINVAL }
	outOfMemory := func(op kernel.Op) error {
		if op.Name() == "add-real" {
			return syscall.ENOMEM
		}
		return nil
	}
	at := kernel.Key{Addr: netip.MustParseAddr("10.96.0.10"), Protocol: kernel.TCP, Port: 80}
	for _, test := range []struct {
		what            string
		reject          func(kernel.Op) error
		listLacksServer bool
		fails           string
		reals, refused  int
	}{
		{what: "nothing rejected", reals: 2},
		{what: "endpoint rejected", reject: rejectBroadcast, reals: 1, refused: 1},
		{what: "virtual server not listed", listLacksServer: true, reals: 2},
		{what: "no memory", reject: outOfMemory, fails: "cannot allocate memory"},
		{what: "all rejected", reject: rejectAll, fails: "rejects every Service", refused: 2},
	} {
		k := fake.New()
		k.RejectWith(test.reject)
		list := &emptyList{Kernel: k, listed: !test.listLacksServer}
		if test.listLacksServer {
			if err := k.ApplyExternally(kernel.AddVirtual{Virtual: kernel.Virtual{Key: at, Scheduler: "rr"}}); err != nil {
				t.Fatal(err)
			}
		}
		e := engine.New(list, oneService{}, engine.Options{Desired: desired.Options{Scheduler: "rr"}, Adopt: true})
		report, err := programAll(context.Background(), e)
		if err != nil {
			t.Fatal(err)
		}
		err = programmed(e, report)
		if (err != nil) != (test.fails != "") || err != nil && !strings.Contains(err.Error(), test.fails) {
			t.Errorf("%s: error %v, want %q", test.what, err, test.fails)
		}
		if reals := len(k.State().Reals(at)); reals != test.reals || len(report.Refused) != test.refused {
			t.Errorf("%s: %d real servers, refused %v; want %d and %d", test.what, reals, report.Refused, test.reals, test.refused)
		}
	}
}

// loopbackUp returns the loopback device, which it sets up first if it is down, as in the VM of suites/proxier.
func loopbackUp(t *testing.T) netlink.Link {
	t.Helper()
	lo, err := netlink.LinkByName("lo")
	if err == nil && lo.Attrs().Flags&net.FlagUp == 0 {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		t.Fatal("setting up the loopback device:", err)
	}
	return lo
}

// A proxy is found at the address that it is bound to. Only a port at which nothing listens means that none runs.
func TestRunningMode(t *testing.T) {
	loopbackUp(t)
	serve := func(address string, status int, text string) (port string) {
		t.Helper()
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		s := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, text)
		})}}
		s.Start()
		t.Cleanup(s.Close)
		_, port, err = net.SplitHostPort(l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		return port
	}
	other, local := serve("127.0.0.2:0", http.StatusOK, "ipvs"), serve("127.0.0.1:0", http.StatusOK, "nftables\n")
	wrong, silent := serve("127.0.0.1:0", http.StatusNotFound, "404 page not found"), serve("127.0.0.1:0", http.StatusOK, "")
	nothing := testfiles.Refusing(t).String()
	for address, want := range map[string]string{
		"127.0.0.2:" + other: "ipvs", "127.0.0.1:" + local: "nftables", "0.0.0.0:" + local: "nftables", "[::]:" + local: "nftables", ":" + local: "nftables",
		nothing: "", "127.0.0.1:" + wrong: "error", "127.0.0.1:" + silent: "error", "no port": "error", "127.0.0.1:65536": "error",
	} {
		m := migration{settings: settings{metrics: address}}
		got, err := m.runningMode(t.Context())
		if err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("at %s runs %q (%v), want %q", address, got, err, want)
		}
	}
}

// As long as it is not known whether a proxy runs, no direction of the migration changes anything.
func TestUnknownProxyStopsMigration(t *testing.T) {
	m := migration{from: "ipvs", to: bundled, settings: settings{metrics: "no port"}, kubeProxy: &linux.KubeProxy{}}
	if err := m.toBundled(t.Context()); !errors.As(err, new(*net.AddrError)) {
		t.Errorf("the migration to bundled goes on: %v", err)
	}
	m.from, m.to = bundled, "ipvs"
	if err := m.requireServing(t.Context(), nil); !errors.As(err, new(*net.AddrError)) {
		t.Errorf("the migration back goes on: %v", err)
	}
}
