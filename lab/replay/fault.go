package replay

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Scope selects the watches that a fault affects. Empty fields match all; the zero value matches every watch.
type Scope struct {
	UserAgent string     // part of the User-Agent header, as "kube-proxy/"
	Addr      netip.Addr // the client's address, as a node's
	Resource  string     // as in paths: "services", "endpointslices"
}

// Fault is a failure of an API server or its network that can be injected.
type Fault interface {
	// begin is called with Server.mu held; so is the function that it returns, which lifts the fault.
	begin(*Server) (lift func())
}

// DelayWatches delays each event of the watches by By after its write, including events that are pending when the fault
// begins. Lifting the fault releases delayed events. Lists are not delayed. If several faults match, the longest delay
// applies.
type DelayWatches struct {
	Scope
	By time.Duration
}

// CutWatches ends the open watches cleanly, as a server does on shutdown. New watches are served.
type CutWatches struct{ Scope }

// ExpireNextWatch answers the next watch with 410 Gone (an ERROR event) for any resource version, so that the client
// lists again. It applies to one watch. Open watches continue; CutWatches ends them.
type ExpireNextWatch struct{ Scope }

// LoseNext loses one event, as a faulty watch cache or network proxy does: the first event after the fault began that a
// watch in scope would send. No watch in scope sends it, also when it resumes from an earlier version. Lists and
// initial events are complete, so a client that lists again has the true state. Each fault loses one event; lifting it
// does not restore the event.
//
// With several resources in scope it is not defined whose event is lost.
type LoseNext struct {
	Scope
	// Lost is told what was lost, as "MODIFIED EndpointSlice default/web-1"; it may be nil.
	Lost func(what string)
}

// loss is a LoseNext that has begun.
type loss struct {
	LoseNext
	after   uint64 // events up to this version are not lost
	version uint64 // of the event that was lost; 0 for none yet
}

// Away disconnects the clients at these addresses, as a network failure does: watches end, and the connection of each
// request is closed without a response.
type Away struct{ Addrs []netip.Addr }

// Fault begins a fault and returns the function that lifts it. Lifting a fault that has been applied does nothing.
func (s *Server) Fault(f Fault) (lift func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	end := f.begin(s)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		end()
	}
}

func (f DelayWatches) begin(s *Server) func() {
	active := &f
	s.delays = append(s.delays, active)
	s.notify(f.Scope)
	return func() {
		s.delays = slices.DeleteFunc(s.delays, func(other *DelayWatches) bool { return other == active })
		s.notify(f.Scope)
	}
}

func (f CutWatches) begin(s *Server) func() {
	for _, w := range s.open(f.Scope) {
		w.end()
	}
	return func() {}
}

func (f ExpireNextWatch) begin(s *Server) func() {
	active := &f
	s.expiring = append(s.expiring, active)
	return func() {
		s.expiring = slices.DeleteFunc(s.expiring, func(other *ExpireNextWatch) bool { return other == active })
	}
}

func (f LoseNext) begin(s *Server) func() {
	active := &loss{LoseNext: f, after: s.version}
	s.losses = append(s.losses, active)
	return func() {
		s.losses = slices.DeleteFunc(s.losses, func(other *loss) bool { return other == active && other.version == 0 })
	}
}

func (f Away) begin(s *Server) func() {
	active := &f
	s.away = append(s.away, active)
	for _, a := range f.Addrs {
		for _, w := range s.open(Scope{Addr: a}) {
			w.end()
		}
	}
	return func() {
		s.away = slices.DeleteFunc(s.away, func(other *Away) bool { return other == active })
	}
}

// isAway reports whether a client is disconnected by Away. Server.mu must be held.
func (s *Server) isAway(c client) bool {
	return slices.ContainsFunc(s.away, func(f *Away) bool { return slices.Contains(f.Addrs, c.addr) })
}

// Watcher describes an open watch.
type Watcher struct {
	Resource  string // as in paths
	UserAgent string
	Addr      netip.Addr
}

// Watchers lists the open watches in scope by resource and age. Tests use it to see that a client has started.
func (s *Server) Watchers(scope Scope) []Watcher {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Watcher
	for _, w := range s.open(scope) {
		all = append(all, Watcher{Resource: w.store.plural, UserAgent: w.client.agent, Addr: w.client.addr})
	}
	return all
}

// client identifies the sender of a request.
type client struct {
	agent string
	addr  netip.Addr
}

func clientOf(r *http.Request) client {
	remote, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil { // not from a network listener
		return client{agent: r.UserAgent()}
	}
	return client{agent: r.UserAgent(), addr: remote.Addr().Unmap()}
}

func (s Scope) matches(w *watch) bool {
	return w.store.is(s.Resource) && strings.Contains(w.client.agent, s.UserAgent) &&
		(!s.Addr.IsValid() || s.Addr.Unmap() == w.client.addr)
}

// The functions below require Server.mu, except delay and loses.

func (s *Server) open(scope Scope) []*watch {
	var found []*watch
	for _, st := range s.served() {
		for _, w := range st.watches {
			if scope.matches(w) {
				found = append(found, w)
			}
		}
	}
	return found
}

func (s *Server) notify(scope Scope) {
	for _, w := range s.open(scope) {
		w.notify()
	}
}

// end cuts the watch; it may be called more than once.
func (w *watch) end() {
	select {
	case <-w.cut:
	default:
		close(w.cut)
	}
}

// expires reports whether w gets 410, and removes the fault that says so.
func (s *Server) expires(w *watch) bool {
	for i, f := range s.expiring {
		if f.matches(w) {
			s.expiring = slices.Delete(s.expiring, i, i+1)
			return true
		}
	}
	return false
}

// loses reports whether the event at this version is lost for w, and marks the fault as applied if this is its event;
// what describes the event to the fault.
func (s *Server) loses(w *watch, version uint64, what func() string) bool {
	f, first := s.lossOf(w, version)
	if first && f.Lost != nil {
		f.Lost(what())
	}
	return f != nil
}

// lossOf returns the fault that loses the event at this version for w, or nil, and whether it has just been applied.
func (s *Server) lossOf(w *watch, version uint64) (f *loss, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, lost := range []uint64{version, 0} { // an event that is lost already must not use another fault
		i := slices.IndexFunc(s.losses, func(f *loss) bool { return f.version == lost && version > f.after && f.matches(w) })
		if i >= 0 {
			s.losses[i].version = version
			return s.losses[i], lost == 0
		}
	}
	return nil, false
}

// delay returns the current delay of w's events.
func (s *Server) delay(w *watch) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	var longest time.Duration
	for _, f := range s.delays {
		if f.matches(w) {
			longest = max(longest, f.By)
		}
	}
	return longest
}
