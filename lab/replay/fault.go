package replay

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Scope says whose watches a fault touches. Empty fields match everything; the zero value is every watch.
type Scope struct {
	UserAgent string     // part of the User-Agent header, as "kube-proxy/"
	Addr      netip.Addr // the client's address, as a node's
	Resource  string     // as in paths: "services", "endpointslices"
}

// A Fault is something that a real API server or the network to it may do to a client, done on demand.
type Fault interface {
	// begin is called with Server.mu held; so is the function that it returns, which lifts the fault.
	begin(*Server) (lift func())
}

// DelayWatches delays each event of the watches by By, counted from the write. What is under way when the fault begins
// or is lifted is delayed, or released, as well. Lists are not delayed: a client that lists again sees the newest
// state. When several match, the longest counts.
type DelayWatches struct {
	Scope
	By time.Duration
}

// CutWatches ends the open watches in good order, as a server does that shuts down. New ones are answered.
type CutWatches struct{ Scope }

// ExpireNextWatch answers the next watch with 410 Gone (an ERROR event), whatever version it asks for, so that the
// client lists again. It is used up by one watch. Watches that are open stay: cut them after it to see the effect.
type ExpireNextWatch struct{ Scope }

// LoseNext loses one event, as a watch cache with a bug or a proxy on the way does: the first one, written after the fault began,
// that a watch in scope would show. It is sent to no watch in scope, nor to one that resumes from before it. Lists, and what a
// watch begins with, have what is stored: a client that lists again knows it all. Each fault is used up by one event; what was
// lost stays lost when it is lifted. With watches of several resources in scope, it is chance whose event comes first.
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

// Away keeps the clients at these addresses from the server, as a network that is cut does to them: watches end, and the
// connection of each request is closed without an answer.
type Away struct{ Addrs []netip.Addr }

// Fault begins a fault and returns the function that lifts it. Lifting one that is used up does nothing.
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

// isAway reports whether a client is kept from the server. It is called with Server.mu held.
func (s *Server) isAway(c client) bool {
	return slices.ContainsFunc(s.away, func(f *Away) bool { return slices.Contains(f.Addrs, c.addr) })
}

// Watcher describes an open watch.
type Watcher struct {
	Resource  string // as in paths
	UserAgent string
	Addr      netip.Addr
}

// Watchers lists the open watches in scope, by resource and then by age: a way to know that a client has started.
func (s *Server) Watchers(scope Scope) []Watcher {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Watcher
	for _, w := range s.open(scope) {
		all = append(all, Watcher{Resource: w.store.plural, UserAgent: w.client.agent, Addr: w.client.addr})
	}
	return all
}

// client is who sent a request.
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

// The functions below are called with Server.mu held, but for delay and loses.

func (s *Server) open(scope Scope) []*watch {
	var found []*watch
	for _, st := range s.stores {
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

// end cuts the watch; more than once is fine.
func (w *watch) end() {
	select {
	case <-w.cut:
	default:
		close(w.cut)
	}
}

// expires reports whether w is to be answered with 410, and uses that fault up.
func (s *Server) expires(w *watch) bool {
	for i, f := range s.expiring {
		if f.matches(w) {
			s.expiring = slices.Delete(s.expiring, i, i+1)
			return true
		}
	}
	return false
}

// loses reports whether the event at this version is kept from w, and uses a fault up when it is the next one. What it is like
// is told to the fault.
func (s *Server) loses(w *watch, version uint64, what func() string) bool {
	f, first := s.lossOf(w, version)
	if first && f.Lost != nil {
		f.Lost(what())
	}
	return f != nil
}

// lossOf is the fault that keeps the event at this version from w, nil for none, and whether it has just been used up.
func (s *Server) lossOf(w *watch, version uint64) (f *loss, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, lost := range []uint64{version, 0} { // one that was lost already uses no other fault up
		i := slices.IndexFunc(s.losses, func(f *loss) bool { return f.version == lost && version > f.after && f.matches(w) })
		if i >= 0 {
			s.losses[i].version = version
			return s.losses[i], lost == 0
		}
	}
	return nil, false
}

// delay is by how much the events of w are late now.
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
