// Package fake is a kernel for tests of code that programs IPVS through package kernel. It is stateful, validates
// operations and needs no privileges.
//
//   - It rejects what a kernel rejects: real servers of a missing virtual server, duplicates, deletions of missing
//     objects, overlapping client prefixes, missing schedulers (SetSchedulerMissing).
//   - It records operations (Ops), holds the resulting state (State) and calls back after each operation
//     (OnApply), so that a test can check every intermediate state.
//   - Any operation can fail, lose its reply, or be the last before a crash (FailAt, FailKey, RejectWith,
//     ClearFaults). A new process on the same fake finds the state of the old one.
//   - It keeps connection counts that a test sets (SetConnections), and counts the connections that operations cut
//     (CutConnections).
//   - A test can change it as another program would (ApplyExternally, FlushSets).
//
// It forwards no TCP packets and has no timers. For UDP it models how conntrack pins a flow to its first target
// (SendUDP). Tests of package linux cover the behaviour of a real kernel; tests of package engine run the same
// histories on both and compare them.
package fake

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"syscall"

	"github.com/hitless/hitless/proxier/kernel"
)

// ErrInjected is the error of operations that a test made fail.
var ErrInjected = errors.New("injected failure")

// Fault is a way in which an operation fails.
type Fault uint8

// The faults.
const (
	Fail      Fault = iota + 1 // the operation has no effect and fails
	LoseReply                  // the operation takes effect, but the caller sees a failure
	Crash                      // this and all later operations have no effect and fail, until ClearFaults
)

// Kernel is a fake kernel. It is safe for concurrent use.
type Kernel struct {
	mu                sync.Mutex
	state             *kernel.State
	conns             map[connKey]connections
	flows             map[flowKey]netip.AddrPort // source of replies; the virtual address itself for a flow that was not translated
	nodeAddrs         []netip.Addr
	ops               []kernel.Op
	faults            map[int]Fault
	failingKeys       map[kernel.Key]bool
	rejection         func(kernel.Op) error
	missingSchedulers map[string]bool
	crashed           bool
	cut               int
	onApply           func(kernel.Op)

	damaged chan struct{}
}

type connKey struct {
	key  kernel.Key
	real netip.AddrPort
}

type connections struct{ active, inactive int }

// flowKey identifies the flow of a client's port to a virtual server.
type flowKey struct {
	key    kernel.Key
	client netip.AddrPort
}

var (
	_ kernel.Batcher        = (*Kernel)(nil)
	_ kernel.DamageNotifier = (*Kernel)(nil)
)

// New returns an empty kernel of a node with the given addresses.
func New(node ...netip.Addr) *Kernel {
	return &Kernel{state: kernel.NewState(), conns: map[connKey]connections{}, flows: map[flowKey]netip.AddrPort{}, nodeAddrs: node, faults: map[int]Fault{}, failingKeys: map[kernel.Key]bool{}, missingSchedulers: map[string]bool{}, damaged: make(chan struct{}, 1)}
}

// OnApply sets a function that is called after each operation that took effect. It may read State and nothing else.
func (k *Kernel) OnApply(f func(kernel.Op)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.onApply = f
}

// FailAt makes the n-th operation from now fail, counting from 0.
func (k *Kernel) FailAt(n int, f Fault) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.faults[len(k.ops)+n] = f
}

// FailKey makes all operations on a virtual server fail, including changes of sets that contain it and reads of that
// virtual server.
func (k *Kernel) FailKey(key kernel.Key) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.failingKeys[key] = true
}

// RejectWith makes operations fail without effect, with the function's error; nil accepts an operation.
func (k *Kernel) RejectWith(why func(kernel.Op) error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.rejection = why
}

func (k *Kernel) fails(op kernel.Op) bool {
	if o, sets := op.(kernel.ChangeSets); sets {
		return slices.ContainsFunc(slices.Concat(o.Add, o.Remove), func(e kernel.Element) bool { return k.failingKeys[e.Key] })
	}
	key, one := kernel.KeyOf(op)
	return one && k.failingKeys[key]
}

// ClearFaults removes all faults, including future ones.
func (k *Kernel) ClearFaults() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.crashed, k.faults, k.failingKeys, k.rejection = false, map[int]Fault{}, map[kernel.Key]bool{}, nil
}

// SetSchedulerMissing sets whether the kernel lacks a scheduler.
func (k *Kernel) SetSchedulerMissing(scheduler string, lacks bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.missingSchedulers[scheduler] = lacks
}

// Scheduler implements kernel.Kernel.
func (k *Kernel) Scheduler(name string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.missingSchedulers[name] {
		return fmt.Errorf("the kernel has no scheduler %q: %w", name, syscall.ENOENT)
	}
	return nil
}

// missingScheduler returns the error of an operation that needs a missing scheduler.
func (k *Kernel) missingScheduler(op kernel.Op) error {
	var v kernel.Virtual
	switch o := op.(type) {
	case kernel.AddVirtual:
		v = o.Virtual
	case kernel.UpdateVirtual:
		v = o.Virtual
	}
	if k.missingSchedulers[v.Scheduler] {
		return fmt.Errorf("%v: the kernel has no scheduler %q: %w", op, v.Scheduler, syscall.ENOENT)
	}
	return nil
}

// SetConnections sets the connection counts of a real server. They last as long as the real server.
func (k *Kernel) SetConnections(key kernel.Key, real netip.AddrPort, active, inactive int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.conns[connKey{key, real}] = connections{active, inactive}
}

// SendUDP sends a UDP packet to a virtual server and returns the real server that receives it. It returns false if
// none does: the packet is refused, no virtual server exists, or conntrack holds an untranslated entry of an earlier
// packet, which lasts as long as packets keep coming.
func (k *Kernel) SendUDP(key kernel.Key, client netip.AddrPort) (netip.AddrPort, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	self := netip.AddrPortFrom(key.Addr, key.Port)
	from := flowKey{key, client}
	if real, known := k.flows[from]; known {
		return real, real != self
	}
	if _, exists := k.state.Virtual(key); !exists || !k.state.Bound(key.Addr) && !slices.Contains(k.nodeAddrs, key.Addr) {
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

// CutConnections returns the number of active connections that ended because their real or virtual server was
// deleted.
func (k *Kernel) CutConnections() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.cut
}

// Ops returns all attempted operations, including failed ones.
func (k *Kernel) Ops() []kernel.Op {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.ops)
}

// State returns the live state. Read it only while no operation runs, or from OnApply. Servers, Addresses and
// Elements may be called at any time.
func (k *Kernel) State() *kernel.State { return k.state }

// ApplyExternally changes the kernel as another program would: without faults, record, OnApply and count of cut
// connections.
func (k *Kernel) ApplyExternally(ops ...kernel.Op) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, op := range ops {
		if err := k.state.Apply(op); err != nil {
			return err
		}
		k.endConnections(op)
	}
	return nil
}

// FlushSets empties all filter sets as `nft flush ruleset` does, and signals Damaged.
func (k *Kernel) FlushSets() {
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
	f := k.faults[len(k.ops)]
	k.ops = append(k.ops, op)
	k.crashed = k.crashed || f == Crash
	if k.crashed || f == Fail || k.fails(op) {
		return fmt.Errorf("%v: %w", op, ErrInjected)
	}
	if err := k.missingScheduler(op); err != nil {
		return err
	}
	if k.rejection != nil {
		if err := k.rejection(op); err != nil {
			return fmt.Errorf("%v: %w", op, err)
		}
	}
	if err := k.state.Apply(op); err != nil {
		return err
	}
	k.cut += k.endConnections(op)
	if o, forget := op.(kernel.ForgetFlows); forget {
		k.forgetFlows(o)
	}
	if k.onApply != nil {
		k.onApply(op)
	}
	if f == LoseReply {
		return fmt.Errorf("%v: %w: %w", op, ErrInjected, kernel.ErrNoReply)
	}
	return nil
}

// ApplyAll implements kernel.Batcher. Faults and OnApply work as for single operations.
func (k *Kernel) ApplyAll(ops []kernel.Op) []error {
	errs := make([]error, len(ops))
	for i, op := range ops {
		errs[i] = k.Apply(op)
	}
	return errs
}

func (k *Kernel) forgetFlows(o kernel.ForgetFlows) {
	for _, f := range o.Filters {
		for from, real := range k.flows {
			if from.key == f.Key && f.Stale(real) {
				delete(k.flows, from)
			}
		}
	}
}

// endConnections removes the connections of deleted real servers, and returns the number of active ones.
func (k *Kernel) endConnections(op kernel.Op) int {
	at, ok := kernel.KeyOf(op)
	if !ok {
		return 0
	}
	for from, real := range k.flows { // they end, as with expire_nodest_conn=1
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
	if k.crashed {
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
	if k.crashed || k.failingKeys[key] {
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
		c := k.conns[connKey{key, s.Reals[i].Addr}]
		s.Reals[i].Active, s.Reals[i].Inactive = c.active, c.inactive
	}
	return s
}

// Addresses implements kernel.Kernel.
func (k *Kernel) Addresses() (kernel.Addresses, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.crashed {
		return kernel.Addresses{}, fmt.Errorf("reading: %w", ErrInjected)
	}
	return kernel.Addresses{Bound: k.state.Addresses(), Node: slices.Clone(k.nodeAddrs)}, nil
}

// Elements implements kernel.Kernel.
func (k *Kernel) Elements() ([]kernel.Element, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.crashed {
		return nil, fmt.Errorf("reading: %w", ErrInjected)
	}
	return k.state.Elements(), nil
}
