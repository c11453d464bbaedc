package desired

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hitless/hitless/proxier/kernel"
)

// Table joins the desired states of all Services. If several claim the same address and port, the winner is the
// lowest Origin, then the older Service, then the first by name. So the winner depends neither on the order of
// arrival nor on a restart. A Table is not safe for concurrent use.
type Table struct {
	services map[types.NamespacedName]Service
	claims   map[kernel.Key][]claim // sorted; the first one wins
	shared   map[kernel.Element]int
}

type claim struct {
	virtual *Virtual
	created time.Time
}

func (c claim) compare(o claim) int {
	return cmp.Or(cmp.Compare(c.virtual.Origin, o.virtual.Origin), c.created.Compare(o.created),
		CompareNames(c.virtual.Service, o.virtual.Service))
}

// CompareNames orders Services by namespace and name. It avoids NamespacedName.String, which allocates for each
// comparison and took 5 % of a start with 10,000 Services.
func CompareNames(a, b types.NamespacedName) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}

// NewTable returns an empty table.
func NewTable() *Table {
	return &Table{services: map[types.NamespacedName]Service{}, claims: map[kernel.Key][]claim{}, shared: map[kernel.Element]int{}}
}

// Change is the effect of one Set.
type Change struct {
	Keys   []kernel.Key     // virtual servers whose desired state changed; sorted
	Shared []kernel.Element // elements of shared sets that may have been added or removed; sorted
	Lost   []Refusal        // claims lost to other Services
}

// Set replaces the desired state of one Service. A Service without virtual servers and health check is removed.
func (t *Table) Set(s Service) Change {
	old := t.services[s.Name]
	before := map[kernel.Key]*Virtual{}
	for _, list := range [][]Virtual{old.Virtuals, s.Virtuals} {
		for i := range list {
			before[list[i].Key] = t.winner(list[i].Key)
		}
	}
	for i := range old.Virtuals {
		t.withdraw(&old.Virtuals[i])
	}
	for i := range s.Virtuals {
		t.claim(claim{&s.Virtuals[i], s.Created})
	}
	if t.services[s.Name] = s; len(s.Virtuals) == 0 && s.HealthCheck == nil {
		delete(t.services, s.Name)
	}
	return t.changeSince(before)
}

func (t *Table) changeSince(before map[kernel.Key]*Virtual) Change {
	var c Change
	shared := map[kernel.Element]bool{}
	for _, key := range slices.SortedFunc(maps.Keys(before), kernel.Key.Compare) {
		was, is := before[key], t.winner(key)
		c.Lost = append(c.Lost, t.lostClaims(key)...)
		if was.equal(is) {
			continue
		}
		c.Keys = append(c.Keys, key)
		t.countShared(was, -1, shared)
		t.countShared(is, +1, shared)
	}
	c.Shared = slices.SortedFunc(maps.Keys(shared), kernel.Element.Compare)
	return c
}

func (t *Table) countShared(v *Virtual, by int, touched map[kernel.Element]bool) {
	if v == nil {
		return
	}
	for _, e := range v.sharedElements() {
		touched[e] = true
		if t.shared[e] += by; t.shared[e] == 0 {
			delete(t.shared, e)
		}
	}
}

func (t *Table) winner(k kernel.Key) *Virtual {
	if c := t.claims[k]; len(c) > 0 {
		return c[0].virtual
	}
	return nil
}

func (t *Table) lostClaims(k kernel.Key) []Refusal {
	var lost []Refusal
	for i, c := range t.claims[k] {
		if i > 0 {
			lost = append(lost, Refusal{Service: c.virtual.Service, Reason: AddressTaken,
				Detail: fmt.Sprintf("%v belongs to Service %v", k, t.winner(k).Service)})
		}
	}
	return lost
}

func (t *Table) withdraw(v *Virtual) {
	t.claims[v.Key] = slices.DeleteFunc(t.claims[v.Key], func(c claim) bool { return c.virtual.Service == v.Service })
	if len(t.claims[v.Key]) == 0 {
		delete(t.claims, v.Key)
	}
}

func (t *Table) claim(c claim) {
	list := t.claims[c.virtual.Key]
	at, _ := slices.BinarySearchFunc(list, c, claim.compare)
	t.claims[c.virtual.Key] = slices.Insert(list, at, c)
}

// Get returns the desired state of a virtual server; false if none is wanted.
func (t *Table) Get(k kernel.Key) (Virtual, bool) {
	if v := t.winner(k); v != nil {
		return *v, true
	}
	return Virtual{}, false
}

// HasShared reports whether an element of a shared set is wanted.
func (t *Table) HasShared(e kernel.Element) bool { return t.shared[e] > 0 }

// Keys returns the wanted virtual servers, sorted.
func (t *Table) Keys() []kernel.Key {
	return slices.SortedFunc(maps.Keys(t.claims), kernel.Key.Compare)
}

// Shared returns the wanted elements of shared sets, sorted.
func (t *Table) Shared() []kernel.Element {
	return slices.SortedFunc(maps.Keys(t.shared), kernel.Element.Compare)
}

// Services returns the names of all Services in the table, sorted.
func (t *Table) Services() []types.NamespacedName {
	return slices.SortedFunc(maps.Keys(t.services), CompareNames)
}

// HealthCheck returns the health check of a Service; nil for none.
func (t *Table) HealthCheck(name types.NamespacedName) *HealthCheck {
	return t.services[name].HealthCheck
}

// KeysOf returns the virtual servers of a Service, without those that belong to another one.
func (t *Table) KeysOf(name types.NamespacedName) []kernel.Key {
	var keys []kernel.Key
	virtuals := t.services[name].Virtuals
	for i := range virtuals {
		if k := virtuals[i].Key; t.winner(k).Service == name {
			keys = append(keys, k)
		}
	}
	return keys
}
