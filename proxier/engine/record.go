package engine

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/hitless/hitless/proxier/desired"
	"github.com/hitless/hitless/proxier/kernel"
)

// record is what a read of the kernel says about whose virtual servers are. Of a family in which nothing at all is on record, the
// tables were deleted, or there never was a proxier.
type record struct {
	on     map[kernel.Key]bool
	six    map[bool]bool   // families in which something is on record, by whether it is IPv6
	served map[family]bool // Services that an earlier process served
}

// family is one half of a Service.
type family struct {
	service types.NamespacedName
	six     bool
}

func recordOf(elements []kernel.Element) record {
	r := record{map[kernel.Key]bool{}, map[bool]bool{}, map[family]bool{}}
	for _, el := range elements {
		if el.Set.RecordsOwnership() {
			r.on[el.Key], r.six[el.Key.Addr.Is6()] = true, true
		}
	}
	return r
}

// serve notes, of families without a record, the Services whose virtual servers stand at addresses of the proxier's own device.
func (r record) serve(e *Engine, servers []kernel.Server, state *kernel.State) {
	for _, s := range servers {
		if r.six[s.Key.Addr.Is6()] {
			continue
		}
		if want, wanted := e.table.Get(s.Key); wanted && want.Binds() && state.Bound(s.Key.Addr) {
			r.served[family{want.Service, s.Key.Addr.Is6()}] = true
		}
	}
}

// likely reports whether a virtual server is the proxier's though nothing of its family is on record. Nobody else binds addresses
// on the device, so one that a Service wants at such an address is. A NodePort's address is the node's: one there is, when the same
// Service has one that is bound, and it looks as the proxier would have made it.
func (r record) likely(s kernel.Server, want desired.Virtual, state *kernel.State) bool {
	six := s.Key.Addr.Is6()
	if r.six[six] {
		return false
	}
	return state.Bound(s.Key.Addr) || !want.Binds() && r.served[family{want.Service, six}] && s.Virtual == want.Virtual
}
