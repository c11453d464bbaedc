package analysis

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/hitless/hitless/internal/units"
)

// AttemptKey identifies the attempt of a choice.
type AttemptKey struct {
	Lane uint16
	Seq  uint64
}

// choice is the kernel's answer about the connection of a failed attempt.
type choice struct {
	backend netip.AddrPort // not valid: no node had the connection
	asked   time.Duration
}

// chosen is a backend that the kernel gave attempts of an outage.
type chosen struct {
	address  netip.AddrPort // not valid: none was chosen
	pod      string         // pod with the address at that time; empty when unknown
	attempts int
}

// chosenIn counts the kernel's choices for the attempts of an outage, the most frequent first. Not every attempt has a recorded choice.
func (a *Analysis) chosenIn(o *Outage) []chosen {
	if len(a.choices) == 0 {
		return nil
	}
	var all []chosen
	o.EachFailed(func(r *Sample) {
		choice, asked := a.choices[AttemptKey{o.Lane.ID, uint64(r.Seq)}]
		if !asked {
			return
		}
		address := choice.backend
		c := chosen{address: address}
		if address.IsValid() {
			c.pod = a.pods.podAt(address.Addr().String(), r.Start())
		}
		k := slices.IndexFunc(all, func(x chosen) bool { return x.address == c.address && x.pod == c.pod })
		if k < 0 {
			k, all = len(all), append(all, c)
		}
		all[k].attempts++
	})
	slices.SortFunc(all, func(x, y chosen) int {
		return cmp.Or(cmp.Compare(y.attempts, x.attempts), x.address.Compare(y.address), cmp.Compare(x.pod, y.pod))
	})
	return all
}

// podsMet returns the pods at the addresses that the kernel chose for an outage's failed attempts.
func (o *Outage) podsMet() (met []string) {
	for _, c := range o.chosen {
		if c.pod != "" {
			met = append(met, c.pod)
		}
	}
	return met
}

// metOn reports whether a pod that an outage met runs on the node.
func (a *Analysis) metOn(o *Outage, node string) bool {
	return slices.ContainsFunc(o.met, func(pod string) bool { life := a.pods.byName[pod]; return life != nil && life.node == node })
}

// gave reports whether the kernel may have chosen a backend for failed attempts of the outage. Without recorded choices it may.
func (o *Outage) gave(backend netip.AddrPort) bool {
	told := false
	for _, c := range o.chosen {
		if c.address == backend {
			return true
		}
		told = told || c.address.IsValid()
	}
	return !told
}

// ChosenReport is a backend that the kernel of an outage's node chose for failed attempts.
type ChosenReport struct {
	Backend  string `json:"backend"`  // address and port; empty when the kernel chose none
	Pod      string `json:"pod"`      // at that address when the kernel chose it; empty when unknown
	Attempts int    `json:"attempts"` // attempts with a recorded choice
	// RuleAgeMs is the least time for which the node's table had the backend when the outage began; null when the table was not
	// read.
	RuleAgeMs *float64 `json:"ruleAgeMs"`
}

func (a *Analysis) chosenReport(o *Outage) []ChosenReport {
	var all []ChosenReport
	for _, c := range o.chosen {
		r := ChosenReport{Attempts: c.attempts}
		if c.address.IsValid() {
			r.Backend, r.Pod = c.address.String(), c.pod
			if age, known := a.kernelOf(o).age(c.address, o.from); known {
				ms := units.Millis(age)
				r.RuleAgeMs = &ms
			}
		}
		all = append(all, r)
	}
	return all
}

// ChoiceRow is a backend that the kernel chose, as the page shows it.
type ChoiceRow struct {
	Backend, Pod, Age string
	Attempts          int
}

func (a *Analysis) ChoiceRows(o *Outage) []ChoiceRow {
	var rows []ChoiceRow
	for _, c := range o.chosen {
		row := ChoiceRow{Backend: "none: no node had the connection", Attempts: c.attempts}
		if c.address.IsValid() {
			row.Backend, row.Pod, row.Age = c.address.String(), a.podText(c.address.Addr(), c.pod, o.to), "not looked at"
			if age, known := a.kernelOf(o).age(c.address, o.from); known {
				row.Age = "at least " + units.MsText(units.Millis(age))
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// age is how long a real server had been in the table at an instant: since the first of the successive readings that have it. It is
// unknown for a real server that is not in the table.
func (ts kernelTables) age(address netip.AddrPort, at time.Duration) (time.Duration, bool) {
	i := ts.inForce(at)
	if i < 0 || ts[i].weight(address) < 0 {
		return 0, false
	}
	for i > 0 && ts[i-1].weight(address) >= 0 {
		i--
	}
	return at - ts[i].at, true
}
