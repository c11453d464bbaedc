// Package engine keeps a node's kernel as the Services of a cluster want it: it computes the desired state of what
// changed, plans, carries the plan out operation by operation, and watches real servers drain.
//
// It remembers what it did, so that a change costs what it changes; a full pass reads the kernel and repairs what others
// did to it. It is not for use from more than one goroutine: that one goroutine is the lock under which desired state,
// kernel and drains are compared. It starts no timers; its caller says when.
package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hitless/hitless/proxier/desired"
	"github.com/hitless/hitless/proxier/drain"
	"github.com/hitless/hitless/proxier/kernel"
	"github.com/hitless/hitless/proxier/plan"
)

// Objects are the API objects as last seen.
type Objects interface {
	// Names returns the names of all Services, in any order.
	Names() []types.NamespacedName
	// Service returns one Service, nil when it does not exist. It must not be changed.
	Service(types.NamespacedName) *v1.Service
	// Slices returns the EndpointSlices of a Service, in any order. They must not be changed.
	Slices(types.NamespacedName) []*discovery.EndpointSlice
	// NodeAddresses returns the primary addresses of this node, at most one of each family, sorted.
	NodeAddresses() []netip.Addr
	// NodeZone returns the zone of this node, empty for none.
	NodeZone() string
}

// Options configure an engine.
type Options struct {
	Desired   desired.Options // Reserved, NodePorts and Zone are filled in by the engine
	NodePorts desired.NodePortSelector
	Drain     drain.Limits
	Now       func() time.Time
	Adopt     bool // take over virtual servers of others that Services want, with their connections
}

// Engine is described in the package comment.
type Engine struct {
	kernel  kernel.Kernel
	objects Objects
	options Options

	table  *desired.Table
	state  *kernel.State // what the kernel holds of ours, as far as is known
	drains *drain.List

	pending pending
	again   pending // what the kernel refuses for good, and is tried again with each pass
	suspect suspect
	stale   map[kernel.Key]bool // virtual servers of which conntrack may remember too much
	foreign map[kernel.Key]bool // virtual servers that others created

	refusing map[kernel.Key]map[subject]refusal // what the kernel refused in the last pass
	pass     uint64                             // its number

	refused map[types.NamespacedName]map[desired.Refusal]bool
	names   map[kernel.Key]types.NamespacedName // whose virtual server it is or last was, for reports
	primary []netip.Addr                        // of the Node, as of the last full pass
	served  []netip.Addr                        // the same while the Node is known; else as locate has it
	tried   map[string]bool                     // schedulers that the kernel was asked for
	adopted bool

	setsFailed bool // in the last pass
}

// pending is what the next plan has to look at.
type pending struct {
	keys   map[kernel.Key]bool
	shared map[kernel.Element]bool
	addrs  map[netip.Addr]bool
}

// suspect is what has to be read again because an operation on it failed.
type suspect struct {
	keys     map[kernel.Key]bool
	addrs    bool
	elements bool
}

// New returns an engine that has neither read nor written anything yet.
func New(k kernel.Kernel, objects Objects, options Options) *Engine {
	if options.Now == nil {
		options.Now = time.Now
	}
	return &Engine{kernel: k, objects: objects, options: options,
		table: desired.NewTable(), state: kernel.NewState(), drains: drain.NewList(options.Drain),
		pending: newPending(), again: newPending(), refusing: map[kernel.Key]map[subject]refusal{},
		suspect: suspect{keys: map[kernel.Key]bool{}}, foreign: map[kernel.Key]bool{}, stale: map[kernel.Key]bool{},
		refused: map[types.NamespacedName]map[desired.Refusal]bool{}, names: map[kernel.Key]types.NamespacedName{},
		tried: map[string]bool{}}
}

func newPending() pending {
	return pending{map[kernel.Key]bool{}, map[kernel.Element]bool{}, map[netip.Addr]bool{}}
}

func (p *pending) any() bool { return len(p.keys)+len(p.shared)+len(p.addrs) > 0 }

// add makes pending what is pending in another.
func (p *pending) add(o pending) {
	maps.Copy(p.keys, o.keys)
	maps.Copy(p.shared, o.shared)
	maps.Copy(p.addrs, o.addrs)
}

// What is a fixed word for what happened to a real server.
type What string

// The words for it.
const (
	Added    What = "added"
	Restored What = "restored" // weight 0 to 1, its connections never noticed
	Draining What = "draining" // weight 1 to 0
	Deleted  What = "deleted"  // it had no connections any more, or does not drain
	Expired  What = "expired"  // deleted with connections, after its time was up
)

// Move is a real server that was added to, changed in or taken from a virtual server.
type Move struct {
	Service types.NamespacedName
	Virtual kernel.Key
	Real    netip.AddrPort
	What    What
}

// Report says what a call did.
type Report struct {
	Services   int // Services looked at
	Operations int // operations tried
	Failures   []error
	Moves      []Move
	Refused    []desired.Refusal // refused now and not before
	Repairs    []string          // operations that a pass needed although nothing had changed in the API
	Cancelled  int               // drains that ended because the real server was wanted again
	Again      int               // operations among those tried that the kernel refused for good; they are no failures

	changed map[kernel.Key]bool // in a full pass but the first: what has to change anyway
}

// Sync brings the kernel to the desired state of the named Services, and tries again what failed before. Failures of
// operations are in the report, and stay pending. When the node's own addresses or its zone changed, it is a full pass.
func (e *Engine) Sync(ctx context.Context, names []types.NamespacedName) (Report, error) {
	var r Report
	if !e.adopted {
		return r, errors.New("synchronising before the kernel was read: call Full first")
	}
	if !slices.Equal(e.primary, e.objects.NodeAddresses()) || e.options.Desired.Zone != e.objects.NodeZone() {
		return e.Full(ctx)
	}
	for _, name := range names {
		e.compute(name, &r)
	}
	return r, e.update(ctx, &r)
}

// Full reads the whole state of the kernel and brings it to the desired state of all Services. The first call adopts
// what an earlier process left; it reads everything before it changes anything. An error other than the context's means
// that the kernel could not be read.
func (e *Engine) Full(ctx context.Context) (Report, error) {
	var r Report
	addrs, err := e.kernel.Addresses()
	if err != nil {
		if e.adopted {
			e.computeAll(&r) // nobody tells of a change twice
		}
		return r, fmt.Errorf("reading the addresses of the node: %w", err)
	}
	primary := e.objects.NodeAddresses()
	if err := e.locate(addrs.Node, primary); err != nil {
		return r, err
	}
	e.reserve(addrs, e.served)
	e.forgetMissing()
	e.options.Desired.Zone = e.objects.NodeZone()
	e.computeAll(&r)
	if e.adopted {
		r.changed = maps.Clone(e.pending.keys)
	}
	if err := e.read(addrs.Bound, &r); err != nil {
		return r, err
	}
	if !e.adopted { // an earlier process may have ended between a change and its flows
		for _, k := range e.state.Keys() {
			if !k.Protocol.Drains() {
				e.stale[k] = true
			}
		}
	}
	e.adopted, e.primary = true, primary
	return r, e.apply(ctx, nil, &r)
}

// locate says which addresses of the node count as its primary ones. While the Node is not known, they are those that were served
// until now, by an earlier process if need be: it has virtual servers there on record. Otherwise a start without the Node would take
// NodePorts away until it comes.
func (e *Engine) locate(has, primary []netip.Addr) error {
	if len(primary) > 0 {
		e.served = primary
	}
	if len(primary) > 0 || e.adopted {
		return nil
	}
	e.served = nil
	elements, err := e.kernel.Elements()
	if err != nil {
		return fmt.Errorf("reading the filter sets: %w", err)
	}
	for _, a := range has {
		if slices.ContainsFunc(elements, func(el kernel.Element) bool { return el.Set.RecordsOwnership() && el.Key.Addr == a }) {
			e.served = append(e.served, a)
		}
	}
	return nil
}

// reserve keeps the node's addresses from being claimed by Services, except for NodePorts on those that are for them, and
// except for cluster IPs that another program has on a device for such things.
func (e *Engine) reserve(addrs kernel.Addresses, primary []netip.Addr) {
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

// computeAll renews the desired state of all Services, those that are gone among them.
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

// compute renews the desired state of one Service and notes what has to be planned.
func (e *Engine) compute(name types.NamespacedName, r *Report) {
	r.Services++
	svc := e.objects.Service(name)
	e.try(desired.RequestedScheduler(svc))
	s := desired.Compute(name, svc, e.objects.Slices(name), e.options.Desired)
	change := e.table.Set(s)
	for _, k := range change.Keys {
		e.pending.keys[k] = true
		if v, ok := e.table.Get(k); ok {
			e.names[k] = v.Service
		}
	}
	for _, el := range change.Shared {
		e.pending.shared[el] = true
	}
	current := map[desired.Refusal]bool{}
	for _, list := range [][]desired.Refusal{s.Refused, change.Lost, e.foreignRefusals(s), e.kernelRefusals(s)} {
		for _, refusal := range list {
			if refusal.Service == name {
				current[refusal] = true
			} else {
				e.refuse(refusal, r)
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

// try finds out whether the kernel has a scheduler that a Service asks for. One that is missing is asked for again by the next
// full pass: its module may come.
func (e *Engine) try(scheduler string) {
	o := &e.options.Desired
	if scheduler == "" || scheduler == o.Scheduler || e.tried[scheduler] || !desired.KnownScheduler(scheduler) {
		return
	}
	e.tried[scheduler] = true
	if err := e.kernel.Scheduler(scheduler); err != nil {
		o.UnavailableSchedulers[scheduler] = err.Error()
	}
}

// forgetMissing makes schedulers that were missing be tried again.
func (e *Engine) forgetMissing() {
	for scheduler := range e.options.Desired.UnavailableSchedulers {
		delete(e.tried, scheduler)
	}
	e.options.Desired.UnavailableSchedulers = map[string]string{}
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
		Detail: fmt.Sprintf("virtual server %v was created by somebody else and is left alone", k)}
}

// refuse reports a refusal unless it was reported before.
func (e *Engine) refuse(refusal desired.Refusal, r *Report) {
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

// HealthCheck returns what the healthCheckNodePort of a Service should tell, nil when it has none.
func (e *Engine) HealthCheck(name types.NamespacedName) *desired.HealthCheck {
	return e.table.HealthCheck(name)
}

// Draining returns how many real servers drain.
func (e *Engine) Draining() int { return e.drains.Len() }

// NextDrain is when Drain has to be called next; false when nothing drains.
func (e *Engine) NextDrain() (time.Time, bool) { return e.drains.Next() }

// Has reports whether a virtual server in the kernel is the proxier's, as far as it knows.
func (e *Engine) Has(k kernel.Key) bool {
	_, has := e.state.Virtual(k)
	return has
}

// Flows are what conntrack has to be looked through for, of all virtual servers that the proxier has.
func (e *Engine) Flows() []kernel.FlowFilter {
	var all []kernel.FlowFilter
	for _, k := range e.state.Keys() {
		want, _ := e.Get(k)
		all = append(all, kernel.FlowFilter{Key: k, Keep: want.Reals})
	}
	return all
}

// Pending reports whether something failed and should be tried again. What the kernel refuses for good is no failure, since the
// cause lies in one object; but where the kernel serves nothing at all, it lies elsewhere, and that is one.
func (e *Engine) Pending() bool { return e.pending.any() || e.again.any() && !e.state.Serves() }

// Size returns how many virtual servers the proxier has in the kernel.
func (e *Engine) Size() int { return e.state.Len() }

// Get is the desired state of a virtual server, less those that somebody else's virtual server keeps us from.
func (e *Engine) Get(k kernel.Key) (desired.Virtual, bool) {
	if e.foreign[k] {
		return desired.Virtual{}, false
	}
	return e.table.Get(k)
}

// HasShared is the desired membership of the shared sets.
func (e *Engine) HasShared(el kernel.Element) bool { return e.table.HasShared(el) }

var _ plan.Want = (*Engine)(nil)
