package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hitless/hitless/internal/routing"
	"github.com/hitless/hitless/proxier"
	"github.com/hitless/hitless/proxier/desired"
	"github.com/hitless/hitless/proxier/drain"
	"github.com/hitless/hitless/proxier/engine"
	"github.com/hitless/hitless/proxier/fake"
	"github.com/hitless/hitless/proxier/health"
	"github.com/hitless/hitless/proxier/metrics"
)

// nodesOwn are the faults that need a node or an API server: rules of nft, ports, and the end of the program.
var nodesOwn = []string{"close-node", "lease", "clean-at-end", "ignore-removal-of-node", "serve-other-proxies", "ignore-damage", "early-health"}

// Each fault of objects, changes and order makes a proxier do something else than without it, with the Services of routing.
func TestEachFaultHasAnEffect(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	without := trace(t)
	if again := trace(t); again != without {
		t.Fatal("two traces without a fault differ")
	}
	for _, kind := range slices.Sorted(maps.Keys(joined(objectFaults, changeFaults, orderFaults))) {
		if slices.Contains(nodesOwn, kind) {
			continue
		}
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			if trace(t, "*:"+kind) == without {
				t.Error("the proxier does the same as without the fault")
			}
		})
	}
	for _, kind := range nodesOwn {
		if permanent[kind] == nil {
			t.Errorf("there is no fault %s", kind)
		}
	}
}

// Several faults of operations act together.
func TestFaultsAreCombined(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	one, other := trace(t, "*:no-hairpin"), trace(t, "*:no-isolation")
	if both := trace(t, "*:no-hairpin", "*:no-isolation"); both == one || both == other {
		t.Error("one of two faults has no effect beside the other")
	}
}

// trace is what a proxier with faults does on a kernel, and what its health checks answer, while the Services of routing change.
func trace(t *testing.T, faults ...string) string {
	t.Helper()
	objects, now := newObjects(), time.Unix(0, 0)
	inner := fake.New(objects.NodeAddresses()...)
	checks := &answers{}
	parts := proxier.Config{Source: objects, Kernel: inner, HealthChecks: checks, Node: health.NewNode(time.Minute, time.Now, nil), Metrics: metrics.New(),
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Engine: engine.Options{Desired: desired.Options{Node: "node-1", Scheduler: "rr", TerminatingFallback: true, IPv6: true},
			Drain: drain.Limits{Terminated: time.Hour, Unlisted: time.Hour, FirstCheck: time.Second}, Now: func() time.Time { return now }}}
	if err := inject(&parts, "node-1", "", faults, false); err != nil {
		t.Fatal(err)
	}
	e := engine.New(parts.Kernel, parts.Source, parts.Engine)
	var text strings.Builder
	pass := func(names []types.NamespacedName, report engine.Report, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		if len(faults) == 0 && len(report.Failures) > 0 {
			t.Fatal(report.Failures)
		}
		for _, name := range names {
			if c := e.HealthCheck(name); c != nil {
				parts.HealthChecks.Set(name, c.Port, c.Local)
			}
		}
	}
	report, err := e.Full(t.Context())
	pass(parts.Source.Names(), report, err)
	for _, change := range changes {
		change(objects)
		names := parts.Source.TakeChanged()
		report, err := e.Sync(t.Context(), names)
		pass(names, report, err)
		if _, err := e.ForgetFlows(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	now = now.Add(time.Minute)
	report, err = e.Drain(t.Context())
	pass(nil, report, err)
	for _, op := range inner.Ops() {
		fields, err := json.Marshal(op)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&text, op.Name(), string(fields))
	}
	return text.String() + checks.text.String()
}

// changes of the first Service, in turn.
var changes = []func(*objects){
	func(o *objects) {
		o.change(func(s *v1.Service) { s.Spec.SessionAffinity = v1.ServiceAffinityClientIP })
	},
	func(o *objects) { o.endpoints(0, 1) },
	func(o *objects) { o.endpoints(0, 3) },
	func(o *objects) {
		o.change(func(s *v1.Service) {
			s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = v1.ServiceExternalTrafficPolicyLocal, 30101
		})
	},
	func(o *objects) { o.endpoints(2, 3) }, // on another node
	func(o *objects) { o.endpoints(0, 3) },
	func(o *objects) { o.endpoints(0, 0) },
	func(o *objects) {
		o.change(func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"192.0.3.0/24", "2001:db8:3::/64"} })
	},
	func(o *objects) {
		o.change(func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"192.0.4.0/24"} })
	},
	func(o *objects) { o.endpoints(0, 3) },
	func(o *objects) {
		o.change(func(s *v1.Service) {
			s.Spec.ExternalTrafficPolicy = ""
			s.Spec.Type, s.Status.LoadBalancer, s.Spec.Ports[0].NodePort = v1.ServiceTypeClusterIP, v1.LoadBalancerStatus{}, 0
		})
	},
	func(o *objects) { delete(o.services, plain); o.changed = append(o.changed, plain) },
	func(o *objects) { delete(o.services, datagrams); o.changed = append(o.changed, datagrams) },
}

var plain, datagrams = types.NamespacedName{Namespace: "shop", Name: "plain"}, types.NamespacedName{Namespace: "shop", Name: "datagrams"}

// objects is a source of API objects in memory.
type objects struct {
	services map[types.NamespacedName]*v1.Service
	slices   map[types.NamespacedName][]*discovery.EndpointSlice
	changed  []types.NamespacedName
	all      []discovery.Endpoint // of the first Service
}

func newObjects() *objects {
	o := &objects{services: map[types.NamespacedName]*v1.Service{}, slices: map[types.NamespacedName][]*discovery.EndpointSlice{}}
	for _, f := range []routing.Family{routing.IPv6, routing.IPv4} { // Services of the same name are those of IPv4
		for _, object := range f.Services() {
			switch object := object.(type) {
			case *v1.Service:
				name := types.NamespacedName{Namespace: object.Namespace, Name: object.Name}
				if f == routing.IPv6 && name == datagrams || object.Labels["service.kubernetes.io/service-proxy-name"] != "" {
					continue
				}
				o.services[name], o.slices[name] = object, nil
			case *discovery.EndpointSlice:
				name := types.NamespacedName{Namespace: object.Namespace, Name: object.Labels[discovery.LabelServiceName]}
				o.slices[name] = append(o.slices[name], object)
			}
		}
	}
	six := o.services[types.NamespacedName{Namespace: "shop", Name: "both"}].DeepCopy() // its clients have IPv6 addresses
	six.Name, six.Spec.LoadBalancerSourceRanges = "ranges6", []string{"192.0.2.0/24", "2001:db8::/64"}
	six.Spec.ClusterIPs, six.Spec.ClusterIP = []string{"10.96.0.99", "fd00:96::99"}, "10.96.0.99"
	six.Status.LoadBalancer.Ingress[0].IP, six.Status.LoadBalancer.Ingress[1].IP = "203.0.113.99", "2001:db8:cafe::99"
	o.services[types.NamespacedName{Namespace: "shop", Name: "ranges6"}] = six
	o.all = o.slices[plain][0].Endpoints
	return o
}

func (o *objects) change(how func(*v1.Service)) {
	s := o.services[plain].DeepCopy()
	how(s)
	o.services[plain], o.changed = s, append(o.changed, plain)
}

// endpoints gives the first Service some of its endpoints.
func (o *objects) endpoints(from, to int) {
	s := o.slices[plain][0].DeepCopy()
	s.Endpoints = o.all[from:to]
	o.slices[plain], o.changed = []*discovery.EndpointSlice{s}, append(o.changed, plain)
}

// Names implements proxier.Source, as do the methods below.
func (o *objects) Names() []types.NamespacedName {
	return slices.SortedFunc(maps.Keys(o.services), func(a, b types.NamespacedName) int { return cmp.Compare(a.Name, b.Name) })
}
func (o *objects) Service(name types.NamespacedName) *v1.Service { return o.services[name] }
func (o *objects) Slices(name types.NamespacedName) []*discovery.EndpointSlice {
	return o.slices[name]
}
func (o *objects) NodeAddresses() []netip.Addr {
	return []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}
}
func (o *objects) Run(context.Context) error { return nil }
func (o *objects) NodeZone() string          { return "zone-1" }
func (o *objects) Changed() <-chan struct{}  { return nil }
func (o *objects) TakeChanged() (names []types.NamespacedName) {
	names, o.changed = o.changed, nil
	return names
}

// answers notes what health checks answer.
type answers struct {
	proxier.HealthChecks
	text strings.Builder
}

func (a *answers) Set(name types.NamespacedName, port uint16, local int) {
	fmt.Fprintln(&a.text, name, port, local)
}
