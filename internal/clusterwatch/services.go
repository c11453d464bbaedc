package clusterwatch

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/hitless/hitless/cluster"
	"github.com/hitless/hitless/probes"
	"github.com/hitless/hitless/probes/session"
	"github.com/hitless/hitless/record"
)

// check finds options that are impossible, before anything is asked.
func (o Options) check() error {
	if o.Kubeconfig == "" {
		return fmt.Errorf("which cluster? name its kubeconfig with --kubeconfig FILE")
	}
	if _, err := labels.Parse(o.Selector); err != nil {
		return fmt.Errorf("--selector %q: %w; give one such as app=web or tier!=test", o.Selector, err)
	}
	if namespace, name, found := strings.Cut(o.Proxy, "/"); !found || namespace == "" || name == "" || strings.Contains(name, "/") {
		return fmt.Errorf("--proxy %q: give the proxy's DaemonSet as NAMESPACE/NAME, such as %s", o.Proxy, DefaultProxy)
	}
	if o.Listen != "" {
		if _, _, err := net.SplitHostPort(o.Listen); err != nil {
			return fmt.Errorf("--listen %q: %w; give HOST:PORT, such as 127.0.0.1:9753", o.Listen, err)
		}
	}
	l, err := o.Lane(1, netip.MustParseAddrPort("192.0.2.1:80"), "")
	if err == nil && record.Datagrams(l.Protocol) {
		err = fmt.Errorf("--protocol %s: a watch of a cluster probes TCP ports only", l.Protocol)
	}
	return err
}

// services are the watched Services by the API, and what is known of their addresses.
type services struct {
	store   cache.Store
	nodes   cache.Store // nil without node ports
	changed chan struct{}

	mu    sync.Mutex
	dirty map[string]bool // keys of Services that have changed since the last look

	known    map[string]known                         // by key
	ready    []target                                 // of the start: those that answered
	waiting  map[cluster.External]*waiting            // those that have not answered yet
	unprobed map[string]bool                          // ports that were named as not probed
	names    map[cluster.External]map[netip.Addr]bool // the addresses of names, by the last look
}

// known is a Service as it was when it was last looked at.
type known struct {
	externals []cluster.External
	local     bool // externalTrafficPolicy: Local
}

// target is an address with its lane.
type target struct {
	cluster.External
	lane  probes.Lane
	local bool
	from  time.Duration // when its first attempt is due
}

// waiting is a target that has not answered yet.
type waiting struct {
	since   time.Duration
	asking  bool
	reason  string
	refused bool // its lane cannot begin
}

// listServices lists the Services and follows them until stop is called.
func (w *watcher) listServices(ctx context.Context) (s *services, stop func(), err error) {
	s = &services{changed: make(chan struct{}, 1), dirty: map[string]bool{}, known: map[string]known{}, waiting: map[cluster.External]*waiting{},
		unprobed: map[string]bool{}, names: map[cluster.External]map[netip.Addr]bool{}}
	ctx, cancel := context.WithCancel(ctx)
	factory := informers.NewSharedInformerFactoryWithOptions(w.cluster.Client, 0, informers.WithNamespace(w.o.Namespace),
		informers.WithTweakListOptions(func(l *metav1.ListOptions) { l.LabelSelector = w.o.Selector }))
	all := []cache.SharedIndexInformer{factory.Core().V1().Services().Informer()}
	s.store = all[0].GetStore()
	begin := []informers.SharedInformerFactory{factory}
	if w.o.NodePorts {
		nodes := informers.NewSharedInformerFactory(w.cluster.Client, 0)
		all, begin = append(all, nodes.Core().V1().Nodes().Informer()), append(begin, nodes)
		s.nodes = all[1].GetStore()
	}
	var synced []cache.InformerSynced
	for i, informer := range all {
		note := s.noteService
		if i > 0 {
			note = s.noteNode
		}
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: note, UpdateFunc: func(_, o any) { note(o) }, DeleteFunc: note})
		if err != nil {
			cancel()
			return nil, nil, fmt.Errorf("following the Services: %w", err)
		}
		synced = append(synced, informer.HasSynced)
	}
	for _, f := range begin {
		f.Start(ctx.Done())
	}
	stop = func() {
		cancel()
		for _, f := range begin {
			f.Shutdown()
		}
	}
	limited, over := context.WithTimeout(ctx, w.o.Within)
	defer over()
	if !cache.WaitForCacheSync(limited.Done(), synced...) {
		stop()
		return nil, nil, fmt.Errorf("listing the Services of %s took more than %v; check whether this machine reaches the API server", w.cluster.Server, w.o.Within)
	}
	return s, stop, nil
}

func (s *services) noteService(o any) {
	if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(o); err == nil {
		s.note(key)
	}
}

// noteNode looks at all Services, because each has a port on each node.
func (s *services) noteNode(any) { s.note(s.store.ListKeys()...) }

func (s *services) note(keys ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		s.dirty[key] = true
	}
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// take returns the keys of the Services that have changed since the last call, in order.
func (s *services) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys := slices.Sorted(maps.Keys(s.dirty))
	clear(s.dirty)
	return keys
}

// look returns the present state of a Service. exists is false when it is deleted, or is being deleted.
func (s *services) look(key string) (now known, unprobed []string, exists bool) {
	o, exists, _ := s.store.GetByKey(key) // the store is memory: no error
	if !exists {
		return known{}, nil, false
	}
	service := o.(*corev1.Service)
	now.externals, unprobed = cluster.Externals(service, s.nodeAddresses())
	now.local = service.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
	return now, unprobed, service.DeletionTimestamp == nil
}

// nodeAddresses are the nodes in the order of their names; nil without node ports.
func (s *services) nodeAddresses() []cluster.Node {
	if s.nodes == nil {
		return nil
	}
	all := []cluster.Node{}
	for _, o := range s.nodes.List() {
		all = append(all, cluster.NodeOf(o.(*corev1.Node)))
	}
	slices.SortFunc(all, func(a, b cluster.Node) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// lane returns the lane of the options to an external address. A name is looked up, and its first address is the target.
func (w *watcher) lane(ctx context.Context, e cluster.External) (probes.Lane, map[netip.Addr]bool, error) {
	all, err := w.lookUp(ctx, e.Host)
	if err != nil {
		return probes.Lane{}, nil, err
	}
	first := slices.SortedFunc(maps.Keys(all), netip.Addr.Compare)[0]
	host := ""
	if _, err := netip.ParseAddr(e.Host); err != nil {
		host = net.JoinHostPort(e.Host, fmt.Sprint(e.Number))
	}
	l, err := w.o.Lane(1, netip.AddrPortFrom(first, e.Number), host)
	l.Name = e.String()
	return l, all, err
}

// lookUp returns the addresses of a host; at least one.
func (w *watcher) lookUp(ctx context.Context, host string) (map[netip.Addr]bool, error) {
	if a, err := netip.ParseAddr(host); err == nil {
		return map[netip.Addr]bool{a.Unmap(): true}, nil
	}
	found, err := w.o.resolve(ctx, "ip", host)
	if err != nil {
		return nil, fmt.Errorf("looking up the load balancer's name: %w", err)
	}
	all := map[netip.Addr]bool{}
	for _, a := range found {
		all[a.Unmap()] = true
	}
	return all, nil
}

// answer is what a target said when it was asked.
type answer struct {
	target
	addresses map[netip.Addr]bool
	err       error
}

// ask asks a target once, as a session asks its target.
func (w *watcher) ask(ctx context.Context, e cluster.External, local bool) answer {
	a := answer{target: target{External: e, local: local}}
	if a.lane, a.addresses, a.err = w.lane(ctx, e); a.err == nil {
		a.err = session.CheckTarget(ctx, &a.lane)
	}
	return a
}

// checkTargets asks all targets of the start. It is an error if none answers, or if they are too many for one machine.
func (w *watcher) checkTargets(ctx context.Context) error {
	s := w.services
	count := 0
	for _, key := range s.take() {
		count++
		now, unprobed, exists := s.look(key)
		if !exists {
			continue
		}
		s.known[key] = now
		w.noteUnprobed(unprobed)
		for _, e := range now.externals {
			s.waiting[e] = &waiting{}
		}
	}
	if len(s.waiting) == 0 {
		return w.nothing(count)
	}
	var reasons []string
	for _, a := range w.askAll(ctx) {
		if a.err != nil {
			s.waiting[a.External].reason = a.err.Error()
			reasons = append(reasons, fmt.Sprintf("%s: %v", a.External, a.err))
			continue
		}
		delete(s.waiting, a.External)
		s.ready, s.names[a.External] = append(s.ready, a.target), a.addresses
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if len(s.ready) == 0 {
		return fmt.Errorf("none of the %d addresses answers, so that nothing can be measured: %s", len(reasons), strings.Join(reasons[:min(5, len(reasons))], "; "))
	}
	for _, reason := range reasons {
		w.note("not measured until it answers: " + reason)
	}
	return w.checkRoom()
}

// waitingByName are the targets that have not answered yet, in the order of their names.
func (s *services) waitingByName() []cluster.External {
	return slices.SortedFunc(maps.Keys(s.waiting), func(a, b cluster.External) int { return cmp.Compare(a.String(), b.String()) })
}

// askAll asks the waiting targets, some at a time, and returns the answers in the order of their names.
func (w *watcher) askAll(ctx context.Context) []answer {
	const atOnce = 16
	order := w.services.waitingByName()
	answers, gate := make([]answer, len(order)), make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for i, e := range order {
		gate <- struct{}{}
		all.Go(func() {
			answers[i] = w.ask(ctx, e, w.services.known[e.Service].local)
			<-gate
		})
	}
	all.Wait()
	return answers
}

// nothing is the error of a selection without an address.
func (w *watcher) nothing(count int) error {
	what := "no Service" + in(w.o.Namespace)
	if w.o.Selector != "" {
		what += fmt.Sprintf(" matches --selector %q", w.o.Selector)
	}
	switch {
	case count == 0 && w.o.Selector == "":
		return fmt.Errorf("there is %s", what)
	case count == 0:
		return fmt.Errorf("%s", what)
	case w.o.NodePorts:
		return fmt.Errorf("none of the %d Services has a TCP node port", count)
	}
	return fmt.Errorf("none of the %d Services has an external address with a TCP port (load balancer or externalIPs); --target nodePort measures node ports", count)
}

// checkRoom is an error if the first lanes themselves would cause failures on this machine.
func (w *watcher) checkRoom() error {
	var all []probes.Lane
	for i, t := range w.services.ready {
		l := t.lane
		l.ID = uint16(i + 1)
		all = append(all, l)
	}
	if err := session.Preflight(session.CanaryLane(all[0], 0), all...); err != nil {
		return fmt.Errorf("%w; %d addresses at --rate %g each: choose fewer with --selector or --namespace", err, len(all), w.o.Rate)
	}
	return nil
}
