package kernel

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
)

// ErrInvalidOp is the error of an operation that does not fit the state: deleting a missing object, adding an
// existing one.
var ErrInvalidOp = errors.New("invalid operation")

// ErrExists is the error of AddVirtual for an existing virtual server. Another program created it, unless a read missed
// one of the proxier's own.
var ErrExists = errors.New("exists already")

// ErrNoReply is the error of a call whose reply did not arrive in time. The call may have taken effect.
var ErrNoReply = errors.New("no reply from the kernel")

// State is the proxier's model of a kernel: the engine's memory of the real one, and the whole of the fake one. It is
// not safe for concurrent use.
type State struct {
	servers  map[Key]*server
	bound    map[netip.Addr]bool
	elements map[Element]bool
	sources  map[Key]map[netip.Prefix]bool // prefixes in Allowed
	keysAt   map[netip.Addr][]Key          // virtual servers by address; sorted
}

type server struct {
	virtual Virtual
	reals   map[netip.AddrPort]int
}

// NewState returns an empty state.
func NewState() *State {
	return &State{servers: map[Key]*server{}, bound: map[netip.Addr]bool{}, elements: map[Element]bool{},
		sources: map[Key]map[netip.Prefix]bool{}, keysAt: map[netip.Addr][]Key{}}
}

// Apply changes the state as the operation changes a kernel. An operation that a kernel would reject returns
// ErrInvalidOp and changes nothing.
func (s *State) Apply(op Op) error {
	if err := op.apply(s); err != nil {
		return fmt.Errorf("%v: %w", op, err)
	}
	return nil
}

// Virtual returns a virtual server; false if it does not exist.
func (s *State) Virtual(k Key) (Virtual, bool) {
	if v := s.servers[k]; v != nil {
		return v.virtual, true
	}
	return Virtual{}, false
}

// Reals returns the real servers of a virtual server, sorted by address.
func (s *State) Reals(k Key) []Real {
	v := s.servers[k]
	if v == nil {
		return nil
	}
	reals := make([]Real, 0, len(v.reals))
	for _, a := range slices.SortedFunc(maps.Keys(v.reals), netip.AddrPort.Compare) {
		reals = append(reals, Real{Addr: a, Weight: v.reals[a]})
	}
	return reals
}

// Weight returns the weight of a real server; false if it does not exist.
func (s *State) Weight(k Key, real netip.AddrPort) (int, bool) {
	v := s.servers[k]
	if v == nil {
		return 0, false
	}
	w, ok := v.reals[real]
	return w, ok
}

// Keys returns the keys of all virtual servers, sorted.
func (s *State) Keys() []Key { return slices.SortedFunc(maps.Keys(s.servers), Key.Compare) }

// After returns the key that follows k in the order of Keys, and the first one after the last; false if there is no virtual server.
func (s *State) After(k Key) (next Key, exists bool) {
	var first Key
	before := func(a, b Key) bool { return b == Key{} || a.Compare(b) < 0 }
	for other := range s.servers {
		if before(other, first) {
			first = other
		}
		if other.Compare(k) > 0 && before(other, next) {
			next = other
		}
	}
	if (next == Key{}) {
		next = first
	}
	return next, len(s.servers) > 0
}

// Len returns the number of virtual servers.
func (s *State) Len() int { return len(s.servers) }

// Serves reports whether any real server has a positive weight.
func (s *State) Serves() bool {
	for _, v := range s.servers {
		for _, weight := range v.reals {
			if weight > 0 {
				return true
			}
		}
	}
	return false
}

// KeysAt returns the virtual servers at an address, sorted. The caller must not modify them.
func (s *State) KeysAt(a netip.Addr) []Key { return s.keysAt[a] }

// Bound reports whether an address is bound.
func (s *State) Bound(a netip.Addr) bool { return s.bound[a] }

// Addresses returns the bound addresses, sorted.
func (s *State) Addresses() []netip.Addr {
	return slices.SortedFunc(maps.Keys(s.bound), netip.Addr.Compare)
}

// Has reports whether an element is in its set.
func (s *State) Has(e Element) bool { return s.elements[e] }

// Elements returns all elements, sorted.
func (s *State) Elements() []Element {
	return slices.SortedFunc(maps.Keys(s.elements), Element.Compare)
}

// Sources returns the client prefixes that Allowed holds for a virtual server, sorted.
func (s *State) Sources(k Key) []netip.Prefix {
	return slices.SortedFunc(maps.Keys(s.sources[k]), ComparePrefixes)
}

func (s *State) addElement(e Element) {
	s.elements[e] = true
	if e.Set != Allowed {
		return
	}
	if s.sources[e.Key] == nil {
		s.sources[e.Key] = map[netip.Prefix]bool{}
	}
	s.sources[e.Key][e.Source] = true
}

func (s *State) removeElement(e Element) {
	delete(s.elements, e)
	if e.Set != Allowed {
		return
	}
	if delete(s.sources[e.Key], e.Source); len(s.sources[e.Key]) == 0 {
		delete(s.sources, e.Key)
	}
}

// Put replaces one virtual server.
func (s *State) Put(v Server) {
	s.Remove(v.Key)
	reals := make(map[netip.AddrPort]int, len(v.Reals))
	for _, r := range v.Reals {
		reals[r.Addr] = r.Weight
	}
	s.servers[v.Key] = &server{virtual: v.Virtual, reals: reals}
	here := s.keysAt[v.Key.Addr]
	at, _ := slices.BinarySearchFunc(here, v.Key, Key.Compare)
	s.keysAt[v.Key.Addr] = slices.Insert(here, at, v.Key)
}

// Remove removes one virtual server, if it exists.
func (s *State) Remove(k Key) {
	if s.servers[k] == nil {
		return
	}
	delete(s.servers, k)
	here := s.keysAt[k.Addr]
	at, _ := slices.BinarySearchFunc(here, k, Key.Compare)
	if s.keysAt[k.Addr] = slices.Delete(here, at, at+1); len(here) == 1 {
		delete(s.keysAt, k.Addr)
	}
}

// SetAddresses replaces all bound addresses.
func (s *State) SetAddresses(bound []netip.Addr) {
	s.bound = make(map[netip.Addr]bool, len(bound))
	for _, a := range bound {
		s.bound[a] = true
	}
}

// SetElements replaces all elements.
func (s *State) SetElements(elements []Element) {
	s.elements = make(map[Element]bool, len(elements))
	s.sources = map[Key]map[netip.Prefix]bool{}
	for _, e := range elements {
		s.addElement(e)
	}
}

func invalidOp(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalidOp, fmt.Sprintf(format, args...))
}

func (s *State) server(k Key) (*server, error) {
	if v := s.servers[k]; v != nil {
		return v, nil
	}
	return nil, invalidOp("virtual server %v does not exist", k)
}

func (o AddVirtual) apply(s *State) error {
	if s.servers[o.Virtual.Key] != nil {
		return fmt.Errorf("%w: %w", ErrExists, invalidOp("virtual server %v exists already", o.Virtual.Key))
	}
	s.Put(Server{Virtual: o.Virtual})
	return nil
}

func (o UpdateVirtual) apply(s *State) error {
	v, err := s.server(o.Virtual.Key)
	if err == nil {
		v.virtual = o.Virtual
	}
	return err
}

func (o DeleteVirtual) apply(s *State) error {
	if _, err := s.server(o.Key); err != nil {
		return err
	}
	s.Remove(o.Key)
	return nil
}

func (o AddReal) apply(s *State) error {
	v, err := s.server(o.Key)
	if err != nil {
		return err
	}
	if _, ok := v.reals[o.Real]; ok {
		return invalidOp("real server %v exists already", o.Real)
	}
	v.reals[o.Real] = o.Weight
	return nil
}

func (o SetWeight) apply(s *State) error {
	v, err := s.server(o.Key)
	if err != nil {
		return err
	}
	if _, ok := v.reals[o.Real]; !ok {
		return invalidOp("real server %v does not exist", o.Real)
	}
	v.reals[o.Real] = o.Weight
	return nil
}

func (o DeleteReal) apply(s *State) error {
	v, err := s.server(o.Key)
	if err != nil {
		return err
	}
	if _, ok := v.reals[o.Real]; !ok {
		return invalidOp("real server %v does not exist", o.Real)
	}
	delete(v.reals, o.Real)
	return nil
}

func (o Bind) apply(s *State) error {
	if s.bound[o.Addr] {
		return invalidOp("address %v is bound already", o.Addr)
	}
	s.bound[o.Addr] = true
	return nil
}

func (o Unbind) apply(s *State) error {
	if !s.bound[o.Addr] {
		return invalidOp("address %v is not bound", o.Addr)
	}
	delete(s.bound, o.Addr)
	return nil
}

func (s *State) checkOverlap(e Element) error {
	if e.Set != Allowed {
		return nil
	}
	for from := range s.sources[e.Key] {
		if from.Overlaps(e.Source) {
			return invalidOp("element %v overlaps %v", e, from)
		}
	}
	return nil
}

// undo reverts a change of which n elements were added.
func (s *State) undo(o ChangeSets, n int) {
	for _, e := range o.Add[:n] {
		s.removeElement(e)
	}
	for _, e := range o.Remove {
		s.addElement(e)
	}
}

// apply removes before it adds, since client prefixes must not overlap.
func (o ChangeSets) apply(s *State) error {
	for _, e := range o.Add {
		if s.elements[e] {
			return invalidOp("element %v exists already", e)
		}
	}
	for _, e := range o.Remove {
		if !s.elements[e] {
			return invalidOp("element %v does not exist", e)
		}
	}
	for _, e := range o.Remove {
		s.removeElement(e)
	}
	for i, e := range o.Add {
		if err := s.checkOverlap(e); err != nil {
			s.undo(o, i)
			return err
		}
		s.addElement(e)
	}
	return nil
}
