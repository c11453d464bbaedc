package kernel

import (
	"fmt"
	"net/netip"
	"strings"
)

// Op is one operation on the kernel. The operations of this file are all there are.
type Op interface {
	// Name is a fixed word, for counters.
	Name() string
	// String says what is done to what, for logs and test failures.
	String() string
	apply(*State) error
}

// AddVirtual creates a virtual server without real servers.
type AddVirtual struct{ Virtual Virtual }

// UpdateVirtual changes scheduler, affinity and flags of a virtual server. Its connections stay, and no new one is refused.
type UpdateVirtual struct{ Virtual Virtual }

// DeleteVirtual deletes a virtual server.
type DeleteVirtual struct{ Key Key }

// AddReal adds a real server with a weight.
type AddReal struct {
	Key    Key
	Real   netip.AddrPort
	Weight int
}

// SetWeight changes the weight of a real server; its connections stay.
type SetWeight struct {
	Key    Key
	Real   netip.AddrPort
	Weight int
}

// DeleteReal deletes a real server; with expire_nodest_conn=1 each of its connections ends with its next packet.
type DeleteReal struct {
	Key  Key
	Real netip.AddrPort
}

// Bind makes an address the node's own.
type Bind struct{ Addr netip.Addr }

// Unbind takes it back.
type Unbind struct{ Addr netip.Addr }

// ChangeSets adds and removes elements in one transaction: all of it happens, or nothing.
type ChangeSets struct{ Add, Remove []Element }

func (AddVirtual) Name() string    { return "add-virtual" }
func (UpdateVirtual) Name() string { return "update-virtual" }
func (DeleteVirtual) Name() string { return "delete-virtual" }
func (AddReal) Name() string       { return "add-real" }
func (SetWeight) Name() string     { return "set-weight" }
func (DeleteReal) Name() string    { return "delete-real" }
func (Bind) Name() string          { return "bind" }
func (Unbind) Name() string        { return "unbind" }
func (ChangeSets) Name() string    { return "change-sets" }

func (o AddVirtual) String() string    { return fmt.Sprintf("add-virtual %v", o.Virtual.Key) }
func (o UpdateVirtual) String() string { return fmt.Sprintf("update-virtual %v", o.Virtual.Key) }
func (o DeleteVirtual) String() string { return fmt.Sprintf("delete-virtual %v", o.Key) }
func (o AddReal) String() string {
	return fmt.Sprintf("add-real %v %v weight %d", o.Key, o.Real, o.Weight)
}
func (o SetWeight) String() string {
	return fmt.Sprintf("set-weight %v %v weight %d", o.Key, o.Real, o.Weight)
}
func (o DeleteReal) String() string { return fmt.Sprintf("delete-real %v %v", o.Key, o.Real) }
func (o Bind) String() string       { return fmt.Sprintf("bind %v", o.Addr) }
func (o Unbind) String() string     { return fmt.Sprintf("unbind %v", o.Addr) }

func (o ChangeSets) String() string {
	var b strings.Builder
	b.WriteString("change-sets")
	for i, e := range o.Add {
		if i == maxShown {
			fmt.Fprintf(&b, " and %d more added", len(o.Add)-maxShown)
			break
		}
		fmt.Fprintf(&b, " +%v", e)
	}
	for i, e := range o.Remove {
		if i == maxShown {
			fmt.Fprintf(&b, " and %d more removed", len(o.Remove)-maxShown)
			break
		}
		fmt.Fprintf(&b, " -%v", e)
	}
	return b.String()
}

// maxShown keeps a change of thousands of elements to one readable line.
const maxShown = 8

// MostAtOnce bounds a batch: what the kernel has to say about all its operations must fit into a socket's buffer.
const MostAtOnce = 128

// Alike reports whether two operations may follow each other in one batch: what comes by the thousand in a start, and of one
// kind, so that none needs another one of its batch to have succeeded.
func Alike(a, b Op) bool {
	switch a.(type) {
	case AddVirtual, AddReal, Bind:
		return a.Name() == b.Name()
	}
	return false
}

// KeyOf returns the virtual server that an operation is about; false for addresses and sets.
func KeyOf(op Op) (Key, bool) {
	switch o := op.(type) {
	case AddVirtual:
		return o.Virtual.Key, true
	case UpdateVirtual:
		return o.Virtual.Key, true
	case DeleteVirtual:
		return o.Key, true
	case AddReal:
		return o.Key, true
	case SetWeight:
		return o.Key, true
	case DeleteReal:
		return o.Key, true
	}
	return Key{}, false
}
