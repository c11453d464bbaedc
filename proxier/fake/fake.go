// Package fake is a kernel for tests of whatever programs IPVS through package kernel: stateful, validating and without
// privileges.
//
//   - It refuses what a kernel refuses: a real server for a virtual server that does not exist, adding twice, deleting what is
//     not there, ranges of clients that overlap, a scheduler that it lacks (Lack).
//   - It says what was done (Ops), holds it (State), and calls back after every single operation (After), so that a test can
//     judge each state in between, and not the last one alone.
//   - Any operation can fail, take effect and lose its reply, or be the last before the process dies (FailAt, Poison, Reject, Revive).
//     A new process on the same fake finds what the old one left.
//   - It keeps connection counts that a test sets (Connect), and counts those that operations cut (Cut).
//   - Others can change it behind the back of the code under test (Do, Flush).
//
// It forwards no packets of TCP and has no timers. Of UDP it knows what makes flows hang: where a packet went first, the
// next ones go (Send). What it does not know of a kernel, the tests of package linux ask a real one; and those of package engine let a
// real one live through the same histories, and compare the two.
package fake

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/hitless/hitless/proxier/kernel"
)

// ErrInjected is the error of an operation that a test made fail.
var ErrInjected = errors.New("injected failure")

// Fault says how an operation fails.
type Fault uint8

// The faults.
const (
	Refuse Fault = iota + 1 // the operation has no effect and fails
	Lose                    // it takes effect, but its reply is lost: the caller sees a failure
	Die                     // it and all later operations have no effect and fail, until Revive
)

// Kernel is a fake kernel. It is safe for concurrent use.
type Kernel struct {
	mu     sync.Mutex
	state  *kernel.State
	conns  map[target]connections
	flows  map[sender]netip.AddrPort // who answers; the virtual address itself for one that was not translated
	node   []netip.Addr
	ops    []kernel.Op
	fault  map[int]Fault
	poison map[kernel.Key]bool
	reject func(kernel.Op) error
	lacks  map[string]bool // schedulers
	dead   bool
	cut    int
	after  func(kernel.Op)

	damaged chan struct{}
}

type target struct {
	key  kernel.Key
	real netip.AddrPort
}

type connections struct{ active, inactive int }

// sender is a client that sends from one port to one virtual server.
type sender struct {
	key    kernel.Key
	client netip.AddrPort
}

var (
	_ kernel.Batcher = (*Kernel)(nil)
	_ kernel.Watched = (*Kernel)(nil)
)

// New returns an empty kernel of a node that has the given addresses.
func New(node ...netip.Addr) *Kernel {
	return &Kernel{state: kernel.NewState(), conns: map[target]connections{}, flows: map[sender]netip.AddrPort{}, node: node, fault: map[int]Fault{}, poison: map[kernel.Key]bool{}, lacks: map[string]bool{}, damaged: make(chan struct{}, 1)}
}

// After sets a function that is called after each operation that took effect. It may read State, and nothing else.
func (k *Kernel) After(f func(kernel.Op)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.after = f
}

// FailAt makes the n-th operation from now on fail, counting from 0.
func (k *Kernel) FailAt(n int, f Fault) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.fault[len(k.ops)+n] = f
}

// Poison makes every operation on a virtual server fail, every change of sets with it among others, and its being read alone.
func (k *Kernel) Poison(key kernel.Key) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.poison[key] = true
}

// Reject makes operations fail without effect, with the error that a function has for them; nil for none.
func (k *Kernel) Reject(why func(kernel.Op) error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.reject = why
}

func (k *Kernel) poisoned(op kernel.Op) bool {
	if o, sets := op.(kernel.ChangeSets); sets {
		return slices.ContainsFunc(slices.Concat(o.Add, o.Remove), func(e kernel.Element) bool { return k.poison[e.Key] })
	}
	key, one := kernel.KeyOf(op)
	return one && k.poison[key]
}

// Revive ends all faults, those to come included.
func (k *Kernel) Revive() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.dead, k.fault, k.poison, k.reject = false, map[int]Fault{}, map[kernel.Key]bool{}, nil
}

// Lack makes the kernel one that does not have a scheduler, or has it again.
func (k *Kernel) Lack(scheduler string, lacks bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lacks[scheduler] = lacks
}

// Scheduler implements kernel.Kernel.
func (k *Kernel) Scheduler(name string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.lacks[name] {
		return fmt.Errorf("the kernel has no scheduler %q", name)
	}
	return nil
}

// lacking is the error of an operation that needs a scheduler which the kernel does not have.
func (k *Kernel) lacking(op kernel.Op) error {
	var v kernel.Virtual
	switch o := op.(type) {
	case kernel.AddVirtual:
		v = o.Virtual
	case kernel.UpdateVirtual:
		v = o.Virtual
	}
	if k.lacks[v.Scheduler] {
		return fmt.Errorf("%v: the kernel has no scheduler %q", op, v.Scheduler)
	}
	return nil
}

// Connect sets the numbers of connections of a real server. They survive as long as the real server does.
func (k *Kernel) Connect(key kernel.Key, real netip.AddrPort, active, inactive int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.conns[target{key, real}] = connections{active, inactive}
}

// Send is a packet of UDP to a virtual server. It returns the real server that gets it; false when none does: it is
// refused, it is lost before there is a virtual server, or conntrack remembers that an earlier one was. That last is what
// a kernel does: an entry that was made without a translation lasts as long as packets keep coming.
func (k *Kernel) Send(key kernel.Key, client netip.AddrPort) (netip.AddrPort, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	self := netip.AddrPortFrom(key.Addr, key.Port)
	from := sender{key, client}
	if real, known := k.flows[from]; known {
		return real, real != self
	}
	if _, exists := k.state.Virtual(key); !exists || !k.state.Bound(key.Addr) && !slices.Contains(k.node, key.Addr) {
		k.flows[from] = self
		return netip.AddrPort{}, false
	}
	for _, real := range k.state.Reals(key) {
		if real.Weight > 0 {
			k.flows[from] = real.Addr
			return real.Addr, true
		}
	}
	return netip.AddrPort{}, false
}

// Cut returns how many active connections ended because their real or virtual server was deleted.
func (k *Kernel) Cut() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.cut
}

// Ops returns the operations tried so far, the failed ones included.
func (k *Kernel) Ops() []kernel.Op {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.ops)
}

// State is what the kernel holds. It is live: read it only while nothing is applied, or from After; Servers, Addresses
// and Elements may be read at any time.
func (k *Kernel) State() *kernel.State { return k.state }

// Do changes the kernel behind the proxier's back: no fault, no record, no After, and what it
// cuts is not counted.
func (k *Kernel) Do(ops ...kernel.Op) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, op := range ops {
		if err := k.state.Apply(op); err != nil {
			return err
		}
		k.disconnect(op)
	}
	return nil
}

// Flush empties all filter sets behind the proxier's back, as `nft flush ruleset` does, and tells it through Damaged.
func (k *Kernel) Flush() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.state.SetElements(nil)
	select {
	case k.damaged <- struct{}{}:
	default:
	}
}

// Damaged implements kernel.Watched.
func (k *Kernel) Damaged() <-chan struct{} { return k.damaged }

// Apply implements kernel.Kernel.
func (k *Kernel) Apply(op kernel.Op) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	f := k.fault[len(k.ops)]
	k.ops = append(k.ops, op)
	k.dead = k.dead || f == Die
	if k.dead || f == Refuse || k.poisoned(op) {
		return fmt.Errorf("%v: %w", op, ErrInjected)
	}
	if err := k.lacking(op); err != nil {
		return err
	}
	if k.reject != nil {
		if err := k.reject(op); err != nil {
			return fmt.Errorf("%v: %w", op, err)
		}
	}
	if err := k.state.Apply(op); err != nil {
		return err
	}
	k.cut += k.disconnect(op)
	if o, forget := op.(kernel.ForgetFlows); forget {
		k.forget(o)
	}
	if k.after != nil {
		k.after(op)
	}
	if f == Lose {
		return fmt.Errorf("%v: %w: %w", op, ErrInjected, kernel.ErrLost)
	}
	return nil
}

// ApplyAll implements kernel.Batcher: faults, poison and After are those of single operations.
func (k *Kernel) ApplyAll(ops []kernel.Op) []error {
	errs := make([]error, len(ops))
	for i, op := range ops {
		errs[i] = k.Apply(op)
	}
	return errs
}

func (k *Kernel) forget(o kernel.ForgetFlows) {
	for _, f := range o.Of {
		for from, real := range k.flows {
			if from.key == f.Key && f.Stale(real) {
				delete(k.flows, from)
			}
		}
	}
}

// disconnect ends the connections of real servers that are gone, and returns how many were active.
func (k *Kernel) disconnect(op kernel.Op) int {
	at, ok := kernel.KeyOf(op)
	if !ok {
		return 0
	}
	for from, real := range k.flows { // with expire_nodest_conn=1 they end
		if _, exists := k.state.Weight(from.key, real); from.key == at && !exists && real.Addr() != at.Addr {
			delete(k.flows, from)
		}
	}
	cut := 0
	for t, c := range k.conns {
		if _, exists := k.state.Weight(t.key, t.real); t.key == at && !exists {
			cut += c.active
			delete(k.conns, t)
		}
	}
	return cut
}

// Servers implements kernel.Kernel.
func (k *Kernel) Servers() ([]kernel.Server, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.dead {
		return nil, fmt.Errorf("reading: %w", ErrInjected)
	}
	var all []kernel.Server
	for _, key := range k.state.Keys() {
		all = append(all, k.server(key))
	}
	return all, nil
}

// Server implements kernel.Kernel.
func (k *Kernel) Server(key kernel.Key) (kernel.Server, bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.dead || k.poison[key] {
		return kernel.Server{}, false, fmt.Errorf("reading: %w", ErrInjected)
	}
	if _, exists := k.state.Virtual(key); !exists {
		return kernel.Server{}, false, nil
	}
	return k.server(key), true, nil
}

func (k *Kernel) server(key kernel.Key) kernel.Server {
	v, _ := k.state.Virtual(key)
	s := kernel.Server{Virtual: v, Reals: k.state.Reals(key)}
	for i := range s.Reals {
		c := k.conns[target{key, s.Reals[i].Addr}]
		s.Reals[i].Active, s.Reals[i].Inactive = c.active, c.inactive
	}
	return s
}

// Addresses implements kernel.Kernel.
func (k *Kernel) Addresses() (kernel.Addresses, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.dead {
		return kernel.Addresses{}, fmt.Errorf("reading: %w", ErrInjected)
	}
	return kernel.Addresses{Bound: k.state.Addresses(), Node: slices.Clone(k.node)}, nil
}

// Elements implements kernel.Kernel.
func (k *Kernel) Elements() ([]kernel.Element, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.dead {
		return nil, fmt.Errorf("reading: %w", ErrInjected)
	}
	return k.state.Elements(), nil
}
