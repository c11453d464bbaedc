package analysis

import (
	"fmt"
	"slices"
	"time"

	"github.com/hitless/hitless/internal/units"
	"github.com/hitless/hitless/record"
)

// fromStart is what failed on measured lanes before the scenario began: what the record shows to be the subject's own doing, and
// the rest, for which the measurement may be to blame.
type fromStart struct {
	own     []string // a sentence for each lane
	lost    *ledger  // what is the subject's own: it may be beyond the budget, whatever the rest is
	unclear []string // a sentence for each lane
}

// scenarioBegan is when the scenario began, or the end of a run that did not get that far.
func (a *Analysis) scenarioBegan() time.Duration {
	if s, ok := a.Phase("scenario"); ok {
		return s.From
	}
	return a.End
}

// sinceStart judges the outages of measured lanes before the scenario.
func (a *Analysis) sinceStart() fromStart {
	f := fromStart{lost: newLedger(a.Run.Budget)}
	for _, l := range a.Measured() {
		until, own, unclear := a.scenarioBegan()-l.fleet.clock, "", 0
		for _, o := range l.Outages {
			if o.from >= until {
				continue
			}
			why := a.ownDoing(o)
			o.eachBefore(until, func(r *Sample) {
				if why == "" {
					unclear++
				} else {
					f.lost.add(a.ruleOf(o, r), o, r)
				}
			})
			if own == "" && why != "" {
				own = fmt.Sprintf("the subject was faulty from the start: lane %s failed at %s, before the scenario began: %s", l.Name, units.At(units.Seconds(o.from)), why)
			}
		}
		if own != "" {
			f.own = append(f.own, own)
		}
		if unclear > 0 {
			f.unclear = append(f.unclear, fmt.Sprintf("the baseline is not clean: %d of %s attempts of lane %s failed before the scenario began at %s%s", unclear,
				units.Thousands(l.attemptsBefore(until)), l.Name, units.At(units.Seconds(a.scenarioBegan())), a.directHint()))
		}
	}
	return f
}

// directHint tells how to learn whose loss it is, where pods can be probed and were not.
func (a *Analysis) directHint() string {
	if !a.inLab() || slices.ContainsFunc(a.Lanes, func(l *Lane) bool { return l.Role == record.RolePod }) {
		return ""
	}
	return "; --set direct=on also probes the pods, to show whose loss it is"
}

// unexplained are the outages among alarms that nothing shows to be the subject's own.
func (a *Analysis) unexplained(alarms []*Outage) []*Outage {
	return slices.DeleteFunc(slices.Clone(alarms), func(o *Outage) bool { return a.ownDoing(o) != "" })
}

// metOwnOutage reports whether a known fault went over the measured Service while the subject failed there by its own doing: no
// detector could have told the two apart.
func (a *Analysis) metOwnOutage(in *injection) bool {
	for _, l := range a.Measured() {
		for _, o := range l.Outages {
			if l.Address == in.lane.Address && o.from <= in.to && o.after >= in.from && a.ownDoing(o) != "" {
				return true
			}
		}
	}
	return false
}

// inLab reports whether the run took place in a lab of hitless's own.
func (a *Analysis) inLab() bool { return a.Run.Kernel.Kind == "vm" || a.Run.Kernel.Kind == "host" }

// eachBefore visits the outage's failed attempts that were intended before an instant.
func (o *Outage) eachBefore(at time.Duration, visit func(*Sample)) {
	o.EachFailed(func(r *Sample) {
		if r.Intended < at {
			visit(r)
		}
	})
}

func (l *Lane) attemptsBefore(at time.Duration) int {
	n := 0
	for i := range l.Records {
		if l.Records[i].Intended < at {
			n += int(l.Records[i].N)
		}
	}
	return n
}

// ownDoing tells by which evidence an outage is the subject's own, empty without any. All of it excludes the client: a pod of
// another Service answered; the node's kernel had no backend; or attempts at the same moments were answered past the fault.
func (a *Analysis) ownDoing(o *Outage) string {
	if pod := a.strangerIn(o); pod != "" {
		return "pod " + pod + " answered, which does not serve " + a.serviceOf(o.Lane)
	}
	if rule, _, _ := a.ruleText(o); rule != "" {
		return rule
	}
	if pods, tried := a.answeredBeside(o, func(l *Lane, _ *Sample) bool { return l.Role == record.RolePod }); tried > 0 {
		if pods == tried {
			return fmt.Sprintf("the pods answered all of %s at their own addresses at the same moments", units.Plural(tried, "attempt"))
		}
		return "" // the pods or the network failed
	}
	node := a.Nodes[o.node]
	if node == "" || !a.podsCannotFail(o) {
		return ""
	}
	over := func(same bool) (answered, tried int) {
		return a.answeredBeside(o, func(l *Lane, r *Sample) bool {
			return l.Role == "" && l.Opens() && r.Node != 0 && (r.Node == o.node) == same && !(same && l == o.Lane)
		})
	}
	if answered, tried := over(true); tried > 0 && answered == tried {
		return fmt.Sprintf("%s answered all of %s on other lanes at the same moments", node, units.Plural(tried, "attempt"))
	}
	if answered, tried := over(false); tried > 0 && answered == tried && a.inLab() {
		return fmt.Sprintf("other nodes answered all of %s at the same moments, and nothing but the subject differs on %s", units.Plural(tried, "attempt"), node)
	}
	return ""
}

// strangerIn is a pod that answered failed attempts of the outage although it serves another Service, empty for none.
func (a *Analysis) strangerIn(o *Outage) (pod string) {
	service := a.serviceOf(o.Lane)
	o.EachFailed(func(r *Sample) {
		name := a.Backends[r.Backend].Name
		if life := a.pods.byName[name]; r.Class == record.Misrouted && life != nil && len(life.services) > 0 && service != "" && !life.serves(service) {
			pod = name
		}
	})
	return pod
}

// podsCannotFail reports whether the pods behind a lane cannot have caused an outage: the virtual clock stands still while a pod is
// due to run, and a handshake needs only its kernel.
func (a *Analysis) podsCannotFail(o *Outage) bool {
	if a.Run.Clock == "virtual" {
		return true
	}
	for class := range o.classes {
		switch class {
		case record.Delayed, record.ConnectTimeout, record.Refused, record.Rejected, record.Unreachable:
		default:
			return false
		}
	}
	return o.Lane.Opens()
}

// answeredBeside counts the attempts from the last good one before an outage to the first good one after it, on other lanes or
// paths, as far as they are of interest and met no injected fault.
func (a *Analysis) answeredBeside(o *Outage, of func(*Lane, *Sample) bool) (answered, tried int) {
	injected := a.injectedFaults()
	for _, l := range a.Lanes {
		for _, r := range l.Records[l.RecordAt(o.before):] {
			if r.Start() > o.after {
				break
			}
			if r.bucket() || r.Class == record.Probe || !of(l, &r) || injected.meets(l, &r) {
				continue
			}
			tried++
			if !r.failed() {
				answered++
			}
		}
	}
	return answered, tried
}

// injectedFaults are the faults of the proof.
type injectedFaults []injection

func (a *Analysis) injectedFaults() injectedFaults {
	var p proof
	p.pair(a)
	return p.injections
}

// meets reports whether an attempt may have met an injected fault of its lane.
func (all injectedFaults) meets(l *Lane, r *Sample) bool {
	for _, in := range all {
		if in.lane == l && r.Start() >= in.from-l.Interval && r.Intended <= in.to+l.Interval {
			return true
		}
	}
	return false
}
