package plan

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hitless/hitless/proxier/desired"
	"github.com/hitless/hitless/proxier/kernel"
)

type want map[kernel.Key]desired.Virtual

func (w want) Get(k kernel.Key) (desired.Virtual, bool) { v, ok := w[k]; return v, ok }
func (w want) Shares(kernel.Element) bool               { return false }

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

// Each plan is made and carried out in turn; what it says is what a reader has to find right.
func TestPlansOfALife(t *testing.T) {
	for _, protocol := range []kernel.Protocol{kernel.TCP, kernel.UDP, kernel.SCTP} {
		have, k := kernel.NewState(), key(protocol)
		dropped := virtual(k, kernel.FromNode)
		dropped.Drop = true
		for _, step := range []struct {
			name     string
			want     want
			tcp, udp []string
		}{
			{"a Service appears", want{k: virtual(k, kernel.Masquerade, 1)}, []string{
				"change-sets +isolated:203.0.113.10 +masquerade:KEY", "add-virtual KEY", "add-real KEY 10.244.1.1:8080 weight 1", "bind 203.0.113.10"}, nil},
			{"a pod takes over from another", want{k: virtual(k, kernel.Masquerade, 2)}, []string{
				"add-real KEY 10.244.1.2:8080 weight 1", "set-weight KEY 10.244.1.1:8080 weight 0"}, []string{
				"add-real KEY 10.244.1.2:8080 weight 1", "delete-real KEY 10.244.1.1:8080"}},
			{"and back: only weights", want{k: virtual(k, kernel.Masquerade, 1)}, []string{
				"set-weight KEY 10.244.1.1:8080 weight 1", "set-weight KEY 10.244.1.2:8080 weight 0"}, []string{
				"add-real KEY 10.244.1.1:8080 weight 1", "delete-real KEY 10.244.1.2:8080"}},
			{"policy Local, and no endpoint here", want{k: dropped}, []string{
				"change-sets +drop:KEY +from-node:KEY", "set-weight KEY 10.244.1.1:8080 weight 0", "change-sets -masquerade:KEY"}, []string{
				"change-sets +drop:KEY +from-node:KEY", "delete-real KEY 10.244.1.1:8080", "change-sets -masquerade:KEY"}},
			{"an endpoint here", want{k: virtual(k, kernel.FromNode, 3)}, []string{
				"add-real KEY 10.244.1.3:8080 weight 1", "change-sets -drop:KEY"}, nil},
			{"nothing to do", want{k: virtual(k, kernel.FromNode, 3)}, []string{}, nil},
			{"the Service goes: its virtual server waits for the connections", want{}, []string{
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
			if diff := cmp.Diff(named(expected, k), got); diff != "" {
				t.Errorf("%v, %s (-want +got):\n%s", protocol, step.name, diff)
			}
		}
		if protocol == kernel.TCP {
			lastConnectionEnds(t, have, k)
		}
	}
}

func lastConnectionEnds(t *testing.T, have *kernel.State, k kernel.Key) {
	t.Helper()
	for _, real := range have.Reals(k) {
		if err := have.Apply(kernel.DeleteReal{Key: k, Real: real.Addr}); err != nil {
			t.Fatal(err)
		}
	}
	got := []string{}
	for _, op := range Compute(Scope{Keys: []kernel.Key{k}}, want{}, have) {
		got = append(got, op.String())
	}
	if diff := cmp.Diff(named([]string{"delete-virtual KEY", "unbind 203.0.113.10", "change-sets -from-node:KEY -isolated:203.0.113.10"}, k), got); diff != "" {
		t.Errorf("after the last connection (-want +got):\n%s", diff)
	}
}

func named(ops []string, k kernel.Key) []string {
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
	both := want{one: virtual(one, kernel.FromNode), two: virtual(two, kernel.FromNode)}
	apply := func(w want) []kernel.Op {
		ops := Compute(Scope{Keys: []kernel.Key{one, two}}, w, have)
		for _, op := range ops {
			if err := have.Apply(op); err != nil {
				t.Fatal(err)
			}
		}
		return ops
	}
	apply(both)
	apply(want{two: both[two]})
	if !have.Bound(one.Addr) {
		t.Error("the address was unbound while another port needs it")
	}
	apply(want{})
	if have.Bound(one.Addr) || len(have.Keys())+len(have.Elements()) > 0 {
		t.Error("something is left over")
	}
}

func TestSchedulerOfAnEarlierProcessIsUpdated(t *testing.T) {
	k := key(kernel.TCP)
	have := kernel.NewState()
	v := virtual(k, kernel.FromNode)
	have.Put(kernel.Server{Virtual: kernel.Virtual{Key: k, Scheduler: "lc"}})
	ops := Compute(Scope{Keys: []kernel.Key{k}}, want{k: v}, have)
	if len(ops) != 3 || ops[1].Name() != "update-virtual" {
		t.Errorf("plan %v, want the virtual server updated after it was recorded", ops)
	}
}
