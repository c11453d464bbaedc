package plan

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hitless/hitless/proxier/desired"
	"github.com/hitless/hitless/proxier/kernel"
)

type wantMap map[kernel.Key]desired.Virtual

func (w wantMap) Get(k kernel.Key) (desired.Virtual, bool) { v, ok := w[k]; return v, ok }
func (w wantMap) HasShared(kernel.Element) bool            { return false }

func key(protocol kernel.Protocol) kernel.Key {
	return kernel.Key{Addr: netip.MustParseAddr("203.0.113.10"), Protocol: protocol, Port: 80}
}

func pod(n byte) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 244, 1, n}), 8080)
}

func virtual(k kernel.Key, source kernel.Set, pods ...byte) desired.Virtual {
	v := desired.Virtual{Virtual: kernel.Virtual{Key: k, Scheduler: "rr"}, Source: source}
	for _, n := range pods {
		v.Reals = append(v.Reals, pod(n))
	}
	return v
}

// The plans of one Service's life cycle, each applied before the next is computed.
func TestPlansOfServiceLifecycle(t *testing.T) {
	for _, protocol := range []kernel.Protocol{kernel.TCP, kernel.UDP, kernel.SCTP} {
		have, k := kernel.NewState(), key(protocol)
		dropped := virtual(k, kernel.FromNode)
		dropped.Drop = true
		for _, step := range []struct {
			name     string
			want     wantMap
			tcp, udp []string
		}{
			{"Service created", wantMap{k: virtual(k, kernel.Masquerade, 1)}, []string{
				"change-sets +isolated:203.0.113.10 +masquerade:KEY", "add-virtual KEY", "add-real KEY 10.244.1.1:8080 weight 1", "bind 203.0.113.10"}, nil},
			{"pod replaced", wantMap{k: virtual(k, kernel.Masquerade, 2)}, []string{
				"add-real KEY 10.244.1.2:8080 weight 1", "set-weight KEY 10.244.1.1:8080 weight 0"}, []string{
				"add-real KEY 10.244.1.2:8080 weight 1", "delete-real KEY 10.244.1.1:8080"}},
			{"replaced back: weights only", wantMap{k: virtual(k, kernel.Masquerade, 1)}, []string{
				"set-weight KEY 10.244.1.1:8080 weight 1", "set-weight KEY 10.244.1.2:8080 weight 0"}, []string{
				"add-real KEY 10.244.1.1:8080 weight 1", "delete-real KEY 10.244.1.2:8080"}},
			{"policy Local without a local endpoint", wantMap{k: dropped}, []string{
				"change-sets +drop:KEY +from-node:KEY", "set-weight KEY 10.244.1.1:8080 weight 0", "change-sets -masquerade:KEY"}, []string{
				"change-sets +drop:KEY +from-node:KEY", "delete-real KEY 10.244.1.1:8080", "change-sets -masquerade:KEY"}},
			{"a local endpoint", wantMap{k: virtual(k, kernel.FromNode, 3)}, []string{
				"add-real KEY 10.244.1.3:8080 weight 1", "change-sets -drop:KEY"}, nil},
			{"no change", wantMap{k: virtual(k, kernel.FromNode, 3)}, []string{}, nil},
			{"Service deleted: its virtual server drains", wantMap{}, []string{
				"set-weight KEY 10.244.1.3:8080 weight 0"}, []string{
				"delete-real KEY 10.244.1.3:8080", "delete-virtual KEY", "unbind 203.0.113.10", "change-sets -from-node:KEY -isolated:203.0.113.10"}},
		} {
			expected := step.tcp
			if protocol != kernel.TCP && step.udp != nil {
				expected = step.udp
			}
			got := []string{}
			for _, op := range Compute(Scope{Keys: []kernel.Key{k}}, step.want, have) {
				got = append(got, op.String())
				if err := have.Apply(op); err != nil {
					t.Fatalf("%v, %s: %v", protocol, step.name, err)
				}
			}
			if diff := cmp.Diff(expandKey(expected, k), got); diff != "" {
				t.Errorf("%v, %s (-want +got):\n%s", protocol, step.name, diff)
			}
		}
		if protocol == kernel.TCP {
			checkPlanAfterDrain(t, have, k)
		}
	}
}

func checkPlanAfterDrain(t *testing.T, have *kernel.State, k kernel.Key) {
	t.Helper()
	for _, real := range have.Reals(k) {
		if err := have.Apply(kernel.DeleteReal{Key: k, Real: real.Addr}); err != nil {
			t.Fatal(err)
		}
	}
	got := []string{}
	for _, op := range Compute(Scope{Keys: []kernel.Key{k}}, wantMap{}, have) {
		got = append(got, op.String())
	}
	if diff := cmp.Diff(expandKey([]string{"delete-virtual KEY", "unbind 203.0.113.10", "change-sets -from-node:KEY -isolated:203.0.113.10"}, k), got); diff != "" {
		t.Errorf("after the last connection (-want +got):\n%s", diff)
	}
}

func expandKey(ops []string, k kernel.Key) []string {
	all := []string{}
	for _, op := range ops {
		for i := 0; i+3 <= len(op); i++ {
			if op[i:i+3] == "KEY" {
				op = op[:i] + k.String() + op[i+3:]
			}
		}
		all = append(all, op)
	}
	return all
}

func TestAddressStaysWhileAnotherPortUsesIt(t *testing.T) {
	one, two := key(kernel.TCP), key(kernel.TCP)
	two.Port = 81
	have := kernel.NewState()
	both := wantMap{one: virtual(one, kernel.FromNode), two: virtual(two, kernel.FromNode)}
	apply := func(w wantMap) []kernel.Op {
		ops := Compute(Scope{Keys: []kernel.Key{one, two}}, w, have)
		for _, op := range ops {
			if err := have.Apply(op); err != nil {
				t.Fatal(err)
			}
		}
		return ops
	}
	apply(both)
	apply(wantMap{two: both[two]})
	if !have.Bound(one.Addr) {
		t.Error("the address was unbound while another port needs it")
	}
	apply(wantMap{})
	if have.Bound(one.Addr) || len(have.Keys())+len(have.Elements()) > 0 {
		t.Error("virtual servers or elements remain")
	}
}

// An address that becomes a node's own keeps its NodePorts and is no longer bound: at once, or after the virtual server
// that was there before has drained.
func TestAddressOfNodePortsIsUnbound(t *testing.T) {
	service, nodePort := key(kernel.TCP), key(kernel.TCP)
	nodePort.Port = 30080
	onNode := virtual(nodePort, kernel.Masquerade, 1)
	onNode.Origin = desired.FromNodePort
	for _, drains := range []bool{false, true} {
		have := kernel.NewState()
		apply := func(w wantMap, keys ...kernel.Key) {
			for _, op := range Compute(Scope{Keys: keys, Addrs: []netip.Addr{service.Addr}}, w, have) {
				if err := have.Apply(op); err != nil {
					t.Fatal(err)
				}
			}
		}
		virtual := virtual(service, kernel.Masquerade)
		if drains {
			virtual.Reals = []netip.AddrPort{pod(1)}
		}
		apply(wantMap{service: virtual}, service)
		apply(wantMap{nodePort: onNode}, service, nodePort)
		if drains {
			if !have.Bound(service.Addr) {
				t.Error("the address was unbound while connections to it drain")
			}
			if err := have.Apply(kernel.DeleteReal{Key: service, Real: pod(1)}); err != nil {
				t.Fatal(err)
			}
			apply(wantMap{nodePort: onNode}, service)
		}
		isolated := have.Has(kernel.Element{Set: kernel.Isolated, Key: kernel.Key{Addr: service.Addr}})
		if have.Bound(service.Addr) || isolated || len(have.Keys()) != 1 || len(have.Reals(nodePort)) != 1 {
			t.Errorf("drains %v: bound: %v, isolated: %v, virtual servers %v", drains, have.Bound(service.Addr), isolated, have.Keys())
		}
	}
}

func TestSchedulerChangeUpdatesVirtualServer(t *testing.T) {
	k := key(kernel.TCP)
	have := kernel.NewState()
	v := virtual(k, kernel.FromNode)
	have.Put(kernel.Server{Virtual: kernel.Virtual{Key: k, Scheduler: "lc"}})
	ops := Compute(Scope{Keys: []kernel.Key{k}}, wantMap{k: v}, have)
	if len(ops) != 3 || ops[1].Name() != "update-virtual" {
		t.Errorf("plan %v, want the record first and then the update", ops)
	}
}
