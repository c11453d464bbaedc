package kernel

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"
)

// Op is one operation on the kernel. This package defines all of them.
type Op interface {
	// Name is the fixed name of the operation, used as a metric label.
	Name() string
	// String describes the operation for logs and test failures.
	String() string
	apply(*State) error
}

// AddVirtual creates a virtual server without real servers.
type AddVirtual struct{ Virtual Virtual }

// UpdateVirtual changes scheduler, affinity and flags of a virtual server. Connections continue, and no new one is
// refused.
type UpdateVirtual struct{ Virtual Virtual }

// DeleteVirtual deletes a virtual server.
type DeleteVirtual struct{ Key Key }

// AddReal adds a real server with a weight.
type AddReal struct {
	Key    Key
	Real   netip.AddrPort
	Weight int
}

// SetWeight changes the weight of a real server. Its connections continue.
type SetWeight struct {
	Key    Key
	Real   netip.AddrPort
	Weight int
}

// DeleteReal deletes a real server. With expire_nodest_conn=1 each of its connections ends with the next packet.
type DeleteReal struct {
	Key  Key
	Real netip.AddrPort
}

// Bind makes an address local.
type Bind struct{ Addr netip.Addr }

// Unbind ends that an address is local.
type Unbind struct{ Addr netip.Addr }

// ChangeSets adds and removes elements in one transaction.
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

// maxShown bounds the elements in the text of an operation.
const maxShown = 8

// MaxBatch bounds a batch: the kernel's replies to all its operations must fit into a socket buffer.
const MaxBatch = 128

// CanBatch reports whether two operations may be in one batch: operations of the same kind that do not depend on each
// other and that a start performs by the thousand.
func CanBatch(a, b Op) bool {
	switch a.(type) {
	case AddVirtual, AddReal, Bind:
		return a.Name() == b.Name()
	}
	return false
}

// KeyOf returns the virtual server of an operation; false for operations on addresses and sets.
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

// FlowFilter selects the stale conntrack entries of one virtual server.
type FlowFilter struct {
	Key  Key
	Keep []netip.AddrPort // real servers whose flows stay
}

// Stale reports whether a flow to the virtual server must be deleted, given the source address of its replies. A flow
// that was not translated is stale: it is older than the virtual server, and its packets bypass it as long as they
// continue. A flow of a protocol that does not drain is stale if its real server is not in Keep.
func (f FlowFilter) Stale(answers netip.AddrPort) bool {
	if answers == netip.AddrPortFrom(f.Key.Addr, f.Key.Port) {
		return true
	}
	if f.Key.Protocol.Drains() {
		return false
	}
	for _, real := range f.Keep {
		if real == answers {
			return false
		}
	}
	return true
}

// ForgetFlows deletes the stale conntrack entries of virtual servers.
type ForgetFlows struct{ Filters []FlowFilter }

// Name implements Op.
func (ForgetFlows) Name() string { return "forget-flows" }

func (o ForgetFlows) String() string {
	var b strings.Builder
	b.WriteString("forget-flows")
	for i, f := range o.Filters {
		if i == maxShown {
			fmt.Fprintf(&b, " and %d more", len(o.Filters)-maxShown)
			break
		}
		fmt.Fprintf(&b, " %v", f.Key)
	}
	return b.String()
}

// State holds no conntrack entries.
func (ForgetFlows) apply(*State) error { return nil }

// permanentErrors are errors that would recur for the same request: a real server at a broadcast address (EINVAL of
// ip_vs_new_dest), a number out of range, an unsupported family, protocol or operation, an address that no device can
// have. Errors that time, privileges or a new read may resolve are not among them: lack of memory, lack of
// permission, existing or missing objects.
var permanentErrors = []syscall.Errno{syscall.EINVAL, syscall.ERANGE, syscall.EAFNOSUPPORT, syscall.EPROTONOSUPPORT, syscall.EOPNOTSUPP,
	syscall.EADDRNOTAVAIL}

// IsPermanent reports whether an error is the kernel's permanent rejection of an operation. Such an operation had no
// effect. Missing privileges are EPERM; EACCES is a device whose IPv6 is disabled.
func IsPermanent(op Op, err error) bool {
	if errors.Is(err, ErrNoReply) {
		return false
	}
	bind, is := op.(Bind)
	return is && bind.Addr.Is6() && errors.Is(err, syscall.EACCES) ||
		slices.ContainsFunc(permanentErrors, func(e syscall.Errno) bool { return errors.Is(err, e) })
}
