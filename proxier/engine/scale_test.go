package engine

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hitless/hitless/proxier/desired"
	"github.com/hitless/hitless/proxier/fake"
	"github.com/hitless/hitless/proxier/kernel"
)

// fleet is n Services of four pods each; the last pod of the first Service can be removed.
type fleet struct {
	n          int
	podRemoved bool
}

func (f *fleet) Names() []types.NamespacedName {
	all := make([]types.NamespacedName, f.n)
	for i := range all {
		all[i] = f.name(i)
	}
	return all
}

func (f *fleet) NodeAddresses() []netip.Addr { return nil }

func (f *fleet) NodeZone() string { return "" }

func (f *fleet) name(i int) types.NamespacedName {
	return types.NamespacedName{Namespace: "fleet", Name: fmt.Sprint(i)}
}

func (f *fleet) index(n types.NamespacedName) (i int) {
	_, _ = fmt.Sscan(n.Name, &i)
	return i
}

func (f *fleet) Service(n types.NamespacedName) *v1.Service {
	i, s := f.index(n), &v1.Service{}
	s.Spec.ClusterIP = netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)}).String()
	s.Spec.Ports = []v1.ServicePort{{Port: 80}}
	return s
}

func (f *fleet) Slices(n types.NamespacedName) []*discovery.EndpointSlice {
	i, port := f.index(n), int32(8080)
	s := &discovery.EndpointSlice{AddressType: discovery.AddressTypeIPv4, Ports: []discovery.EndpointPort{{Port: &port}}}
	for pod := range 4 {
		if pod == 3 && f.podRemoved && i == 0 {
			break
		}
		addr := netip.AddrFrom4([4]byte{10, 128 + byte(pod), byte(i >> 8), byte(i)}).String()
		s.Endpoints = append(s.Endpoints, discovery.Endpoint{Addresses: []string{addr}})
	}
	return []*discovery.EndpointSlice{s}
}

func newFleet(n int) (*fleet, *fake.Kernel, *Engine) {
	f, k := &fleet{n: n}, fake.New()
	return f, k, New(k, f, Options{Desired: desired.Options{Node: node, Scheduler: "rr"}, Drain: limits, Now: func() time.Time { return time.Unix(0, 0) }})
}

// The operations of one endpoint change do not grow with the number of Services.
func TestSyncCostIsIndependentOfServiceCount(t *testing.T) {
	for _, n := range []int{10, 1000} {
		f, k, e := newFleet(n)
		if _, err := e.Full(context.Background()); err != nil {
			t.Fatal(err)
		}
		before := len(k.Ops())
		f.podRemoved = true
		r, err := e.Sync(context.Background(), []types.NamespacedName{f.name(0)})
		if err != nil {
			t.Fatal(err)
		}
		if ops := k.Ops()[before:]; len(ops) != 1 || r.Services != 1 {
			t.Errorf("with %d Services, the removal of one endpoint took %v", n, ops)
		}
	}
}

// countingKernel counts exchanges with the kernel.
type countingKernel struct {
	kernel.Batcher
	exchanges, operations int
}

func (c *countingKernel) Apply(op kernel.Op) error {
	c.exchanges, c.operations = c.exchanges+1, c.operations+1
	return c.Batcher.Apply(op)
}

func (c *countingKernel) ApplyAll(ops []kernel.Op) []error {
	c.exchanges, c.operations = c.exchanges+1, c.operations+len(ops)
	return c.Batcher.ApplyAll(ops)
}

// A start needs at most a hundredth as many exchanges as operations.
func TestStartBatchesOperations(t *testing.T) {
	f, k, _ := newFleet(1000)
	c := &countingKernel{Batcher: k}
	e := New(c, f, Options{Desired: desired.Options{Node: node, Scheduler: "rr"}, Drain: limits, Now: func() time.Time { return time.Unix(0, 0) }})
	if _, err := e.Full(context.Background()); err != nil {
		t.Fatal(err)
	}
	if c.operations < 6000 || c.exchanges > c.operations/100 || len(k.Ops()) != c.operations {
		t.Errorf("%d operations (the kernel had %d) took %d exchanges", c.operations, len(k.Ops()), c.exchanges)
	}
}

func BenchmarkColdStart(b *testing.B) {
	for range b.N {
		_, _, e := newFleet(10000)
		if _, err := e.Full(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkOneChange(b *testing.B) {
	for _, n := range []int{100, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			f, _, e := newFleet(n)
			if _, err := e.Full(context.Background()); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				f.podRemoved = !f.podRemoved
				if _, err := e.Sync(context.Background(), []types.NamespacedName{f.name(0)}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
