// Package engine keeps a node's kernel in the state that the Services of a cluster require. It computes the desired
// state of changed Services, plans and executes the operations, and deletes real servers once they are drained.
//
// It remembers the kernel's state, so the cost of a change does not grow with the number of Services. A full pass
// reads the kernel and repairs external changes. An Engine is for one goroutine only. It starts no timers; its caller
// schedules the calls.
package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hitless/hitless/proxier/desired"
	"github.com/hitless/hitless/proxier/drain"
	"github.com/hitless/hitless/proxier/kernel"
	"github.com/hitless/hitless/proxier/plan"
)

// Objects are the current API objects.
type Objects interface {
	// Names returns the names of all Services, in any order.
	Names() []types.NamespacedName
	// Service returns one Service; nil if it does not exist. The caller must not modify it.
	Service(types.NamespacedName) *v1.Service
	// Slices returns the EndpointSlices of a Service, in any order. The caller must not modify them.
	Slices(types.NamespacedName) []*discovery.EndpointSlice
	// NodeAddresses returns the primary addresses of this node, at most one per family, sorted.
	NodeAddresses() []netip.Addr
	// NodeZone returns the topology zone of this node; empty if unknown.
	NodeZone() string
}

// Options configure an engine.
type Options struct {
	Desired   desired.Options // the engine sets Reserved, NodePortAddrs, Zone and UnavailableSchedulers
	NodePorts desired.NodePortSelector
	Drain     drain.Limits
	Now       func() time.Time
	Adopt     bool // take over virtual servers of another proxy, with their connections, if Services want them
}

// Engine synchronises one kernel; see the package comment.
type Engine struct {
	kernel  kernel.Kernel
	objects Objects
	options Options

	table  *desired.Table
	state  *kernel.State // the last known state of the proxier's own objects in the kernel
	drains *drain.List

	pending    pending
	rejected   pending // operations that the kernel rejects permanently; retried with each pass
	unverified unverified
	staleFlows map[kernel.Key]bool // virtual servers that may have stale conntrack entries
	foreign    map[kernel.Key]bool // virtual servers that other programs created

	rejections map[kernel.Key]map[operand]rejection // rejected operations of the last pass
	passNumber uint64                               // number of the last pass

	refused              map[types.NamespacedName]map[desired.Refusal]bool
	owners               map[kernel.Key]types.NamespacedName // Service that owns or last owned a virtual server, for reports
	primaryAddrs         []netip.Addr                        // of the Node, in the last full pass
	defaultNodePortAddrs []netip.Addr                        // addresses of NodePorts without --nodeport-addresses
	probedSchedulers     map[string]bool                     // schedulers whose availability is known
	failedProbes         map[string][]types.NamespacedName   // schedulers whose check failed in the last pass, with the Services that request them
	initialized          bool
	readFailed           bool // the last full pass could not read the kernel and must be repeated

	setsFailed bool // a change of sets failed in the last pass

	looked kernel.Key // virtual server of the last Look
}

// pending is the scope of the next plan.
type pending struct {
	keys   map[kernel.Key]bool
	shared map[kernel.Element]bool
	addrs  map[netip.Addr]bool
}

// unverified is state that must be read again because an operation on it failed.
type unverified struct {
	keys     map[kernel.Key]bool
	addrs    bool
	elements bool
}

// New returns an engine that has not accessed the kernel yet.
func New(k kernel.Kernel, objects Objects, options Options) *Engine {
	if options.Now == nil {
		options.Now = time.Now
	}
	return &Engine{kernel: k, objects: objects, options: options,
		table: desired.NewTable(), state: kernel.NewState(), drains: drain.NewList(options.Drain),
		pending: newPending(), rejected: newPending(), rejections: map[kernel.Key]map[operand]rejection{},
		unverified: unverified{keys: map[kernel.Key]bool{}}, foreign: map[kernel.Key]bool{}, staleFlows: map[kernel.Key]bool{},
		refused: map[types.NamespacedName]map[desired.Refusal]bool{}, owners: map[kernel.Key]types.NamespacedName{},
		probedSchedulers: map[string]bool{}, failedProbes: map[string][]types.NamespacedName{}}
}

func newPending() pending {
	return pending{map[kernel.Key]bool{}, map[kernel.Element]bool{}, map[netip.Addr]bool{}}
}

func (p *pending) notEmpty() bool { return len(p.keys)+len(p.shared)+len(p.addrs) > 0 }

// add merges another scope into p.
func (p *pending) add(o pending) {
	maps.Copy(p.keys, o.keys)
	maps.Copy(p.shared, o.shared)
	maps.Copy(p.addrs, o.addrs)
}

// ChangeKind is what happened to a real server. The values are metric labels.
type ChangeKind string

// The kinds of change.
const (
	Added    ChangeKind = "added"
	Restored ChangeKind = "restored" // weight 0 to 1; connections continue
	Draining ChangeKind = "draining" // weight 1 to 0
	Deleted  ChangeKind = "deleted"  // deleted without connections, or of a protocol that does not drain
	Expired  ChangeKind = "expired"  // deleted with connections, after its drain limit
)

// Change is a change of one real server.
type Change struct {
	Service types.NamespacedName
	Virtual kernel.Key
	Real    netip.AddrPort
	Kind    ChangeKind
}

// Report is the result of one pass.
type Report struct {
	Services   int // Services that were recomputed
	Operations int // operations attempted
	Failures   []error
	Changes    []Change
	Refused    []desired.Refusal // refusals that were not reported before
	Repairs    []string          // operations of a full pass that no API change explains
	Cancelled  int               // drains that ended because the real server is wanted again
	Rejected   int               // attempted operations that the kernel rejects permanently; not counted as failures

	changed map[kernel.Key]bool // keys with pending API changes, in a full pass after the first
}

// Sync brings the kernel to the desired state of the named Services and retries earlier failures. Failed operations
// are in the report and stay pending. If the node's addresses or zone changed, or the last full pass could not read the
// kernel, it performs a full pass.
func (e *Engine) Sync(ctx context.Context, names []types.NamespacedName) (Report, error) {
	var r Report
	if !e.initialized {
		return r, errors.New("Sync called before Full: the kernel was not read yet")
	}
	if e.readFailed || !slices.Equal(e.primaryAddrs, e.objects.NodeAddresses()) || e.options.Desired.Zone != e.objects.NodeZone() {
		return e.Full(ctx)
	}
	for _, name := range slices.Concat(names, e.takeFailedProbes()) {
		e.compute(name, &r)
	}
	return r, e.update(ctx, &r)
}

// Full reads the whole kernel state and brings it to the desired state of all Services. The first call adopts the
// state of an earlier process. It reads everything before it changes anything. An error other than the context's
// means that the kernel could not be read.
func (e *Engine) Full(ctx context.Context) (Report, error) {
	var r Report
	unread, err := e.readAll(&r)
	if e.readFailed = err != nil; err != nil {
		return r, err
	}
	return r, e.apply(ctx, unread, &r)
}

// readAll recomputes all Services and reads the whole kernel state. It returns the virtual servers that it could not
// read.
func (e *Engine) readAll(r *Report) (unread map[kernel.Key]bool, err error) {
	addrs, err := e.kernel.Addresses()
	if err != nil {
		if e.initialized {
			e.computeAll(r) // the source reports each change only once
		}
		return nil, fmt.Errorf("reading the addresses of the node: %w", err)
	}
	primary := e.objects.NodeAddresses()
	if err := e.setDefaultNodePortAddrs(addrs.Node, primary); err != nil {
		return nil, err
	}
	e.reserveAddresses(addrs, e.defaultNodePortAddrs)
	e.resetSchedulerProbes()
	e.options.Desired.Zone = e.objects.NodeZone()
	e.computeAll(r)
	if e.initialized {
		r.changed = maps.Clone(e.pending.keys)
	}
	if unread, err = e.readKernel(addrs.Bound, r); err != nil {
		return nil, err
	}
	if !e.initialized { // an earlier process may have ended before it deleted stale flows
		for _, k := range e.state.Keys() {
			if !k.Protocol.Drains() {
				e.staleFlows[k] = true
			}
		}
	}
	e.initialized, e.primaryAddrs = true, primary
	return unread, nil
}

// setDefaultNodePortAddrs sets the addresses that serve NodePorts by default. Until the Node is known, those are the node
// addresses with recorded virtual servers of an earlier process, so that a start without the Node removes no
// NodePort.
func (e *Engine) setDefaultNodePortAddrs(has, primary []netip.Addr) error {
	if len(primary) > 0 {
		e.defaultNodePortAddrs = primary
	}
	if len(primary) > 0 || e.initialized {
		return nil
	}
	e.defaultNodePortAddrs = nil
	elements, err := e.kernel.Elements()
	if err != nil {
		return fmt.Errorf("reading the filter sets: %w", err)
	}
	for _, a := range has {
		if slices.ContainsFunc(elements, func(el kernel.Element) bool { return el.Set.RecordsOwnership() && el.Key.Addr == a }) {
			e.defaultNodePortAddrs = append(e.defaultNodePortAddrs, a)
		}
	}
	return nil
}

// reserveAddresses prevents Services from claiming the node's addresses. NodePorts may use the selected ones, and
// cluster IPs those on other programs' dummy devices.
func (e *Engine) reserveAddresses(addrs kernel.Addresses, primary []netip.Addr) {
	o := &e.options.Desired
	o.NodePortAddrs = e.options.NodePorts.Select(slices.Concat(addrs.Node, addrs.Virtual), primary)
	o.Reserved = map[netip.Addr]desired.Reservation{}
	for _, a := range addrs.Virtual {
		o.Reserved[a] = desired.ReservedExceptClusterIPs
	}
	for _, a := range slices.Concat(addrs.Node, primary) {
		o.Reserved[a] = desired.ReservedAlways
	}
}

// computeAll recomputes all Services, including deleted ones.
func (e *Engine) computeAll(r *Report) {
	for _, name := range e.allNames() {
		e.compute(name, r)
	}
}

func (e *Engine) allNames() []types.NamespacedName {
	names := slices.Concat(e.objects.Names(), e.table.Services())
	slices.SortFunc(names, desired.CompareNames)
	return slices.Compact(names)
}

// compute updates the desired state of one Service and marks its changes pending.
func (e *Engine) compute(name types.NamespacedName, r *Report) {
	r.Services++
	svc := e.objects.Service(name)
	e.probeScheduler(desired.RequestedScheduler(svc), name, r)
	s := desired.Compute(name, svc, e.objects.Slices(name), e.options.Desired)
	change := e.table.Set(s)
	for _, k := range change.Keys {
		e.pending.keys[k] = true
		if v, ok := e.table.Get(k); ok {
			e.owners[k] = v.Service
		}
	}
	for _, el := range change.Shared {
		e.pending.shared[el] = true
	}
	current := map[desired.Refusal]bool{}
	for _, list := range [][]desired.Refusal{s.Refused, change.Lost, e.foreignRefusals(s), e.rejectionsOf(s)} {
		for _, refusal := range list {
			if refusal.Service == name {
				current[refusal] = true
			} else {
				e.reportRefusal(refusal, r)
			}
		}
	}
	before := e.refused[name]
	for _, refusal := range slices.SortedFunc(maps.Keys(current), desired.Refusal.Compare) {
		if !before[refusal] {
			r.Refused = append(r.Refused, refusal)
		}
	}
	if e.refused[name] = current; len(current) == 0 {
		delete(e.refused, name)
	}
}

// probeScheduler checks once whether the kernel has a scheduler that a Service requests. A check that fails counts as
// success in this pass, so that no virtual server changes, and is repeated in the next one.
func (e *Engine) probeScheduler(scheduler string, by types.NamespacedName, r *Report) {
	o := &e.options.Desired
	if scheduler == "" || scheduler == o.Scheduler || e.probedSchedulers[scheduler] || !desired.KnownScheduler(scheduler) {
		return
	}
	if waiting := e.failedProbes[scheduler]; len(waiting) > 0 {
		e.failedProbes[scheduler] = append(waiting, by)
		return
	}
	err := e.kernel.Scheduler(scheduler)
	if err != nil && !errors.Is(err, syscall.ENOENT) {
		e.failedProbes[scheduler] = []types.NamespacedName{by}
		r.Failures = append(r.Failures, fmt.Errorf("looking for the scheduler %q: %w", scheduler, err))
		return
	}
	if e.probedSchedulers[scheduler] = true; err != nil {
		o.UnavailableSchedulers[scheduler] = err.Error()
	}
}

// takeFailedProbes returns the Services whose scheduler could not be checked, so that it is checked again.
func (e *Engine) takeFailedProbes() []types.NamespacedName {
	names := slices.Concat(slices.Collect(maps.Values(e.failedProbes))...)
	clear(e.failedProbes)
	slices.SortFunc(names, desired.CompareNames)
	return slices.Compact(names)
}

// resetSchedulerProbes repeats the checks of missing schedulers, since modules may be loaded later.
func (e *Engine) resetSchedulerProbes() {
	for scheduler := range e.options.Desired.UnavailableSchedulers {
		delete(e.probedSchedulers, scheduler)
	}
	e.options.Desired.UnavailableSchedulers = map[string]string{}
	clear(e.failedProbes)
}

func (e *Engine) foreignRefusals(s desired.Service) []desired.Refusal {
	var list []desired.Refusal
	for i := range s.Virtuals {
		if k := s.Virtuals[i].Key; e.foreign[k] {
			list = append(list, foreignRefusal(s.Name, k))
		}
	}
	return list
}

func foreignRefusal(name types.NamespacedName, k kernel.Key) desired.Refusal {
	return desired.Refusal{Service: name, Reason: desired.ForeignServer,
		Detail: fmt.Sprintf("virtual server %v was created by another program and is not changed", k)}
}

// reportRefusal adds a refusal to the report unless it was reported before.
func (e *Engine) reportRefusal(refusal desired.Refusal, r *Report) {
	seen := e.refused[refusal.Service]
	if seen[refusal] {
		return
	}
	if seen == nil {
		seen = map[desired.Refusal]bool{}
		e.refused[refusal.Service] = seen
	}
	seen[refusal] = true
	r.Refused = append(r.Refused, refusal)
}

// Draining returns the number of draining real servers.
func (e *Engine) Draining() int { return e.drains.Len() }

// NextDrain returns the time of the next required call of Drain; false if nothing drains.
func (e *Engine) NextDrain() (time.Time, bool) { return e.drains.Next() }

// Owns reports whether a virtual server exists in the kernel and belongs to the proxier, as far as known.
func (e *Engine) Owns(k kernel.Key) bool {
	_, has := e.state.Virtual(k)
	return has
}

// FlowFilters returns the conntrack filters of all virtual servers of the proxier.
func (e *Engine) FlowFilters() []kernel.FlowFilter {
	var all []kernel.FlowFilter
	for _, k := range e.state.Keys() {
		want, _ := e.Get(k)
		all = append(all, kernel.FlowFilter{Key: k, Keep: want.Reals})
	}
	return all
}

// Pending reports whether something failed and must be retried. Permanently rejected operations count only if the
// kernel serves nothing at all: then the cause is not a single object.
func (e *Engine) Pending() bool {
	return e.readFailed || e.pending.notEmpty() || e.rejected.notEmpty() && !e.state.Serves()
}

// Size returns the number of the proxier's virtual servers in the kernel.
func (e *Engine) Size() int { return e.state.Len() }

// Get returns the desired state of a virtual server; false if none is wanted or a foreign one exists.
func (e *Engine) Get(k kernel.Key) (desired.Virtual, bool) {
	if e.foreign[k] {
		return desired.Virtual{}, false
	}
	return e.table.Get(k)
}

// HasShared is the desired membership of the shared sets.
func (e *Engine) HasShared(el kernel.Element) bool { return e.table.HasShared(el) }

var _ plan.Want = (*Engine)(nil)
