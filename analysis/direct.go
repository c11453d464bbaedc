package analysis

import (
	"fmt"
	"strings"

	"github.com/hitless/hitless/internal/units"
	"github.com/hitless/hitless/record"
)

// asked counts the attempts at a pod's own address during an outage of its Service.
type asked struct {
	pod, node      string
	tried, failing int
}

// down reports whether at least half of the attempts failed. A single lost attempt explains no outage.
func (p asked) down() bool { return 2*p.failing >= p.tried }

// podsBeside are the pods that an outage of a measured lane could have been answered by, as far as they were asked at their
// own addresses meanwhile, in the order of their lanes. Attempts within two gaps of the outage count as of the same instant.
func (a *Analysis) podsBeside(o *Outage) []asked {
	if o.Lane.Control {
		return nil
	}
	var all []asked
	service := a.serviceOf(o.Lane)
	for _, l := range a.Lanes {
		if l.Role != record.RolePod || !sameService(l.Service, service) || (o.Lane.Local && l.Node != a.Nodes[o.node]) {
			continue
		}
		p := asked{pod: l.Pod, node: l.Node}
		for _, r := range l.Records[l.RecordAt(o.from-2*l.Interval):] {
			if r.Start() > o.to+2*l.Interval {
				break
			}
			if r.Class == record.Probe || r.bucket() {
				continue
			}
			p.tried++
			if r.Class.Dropped() || r.Class == record.Delayed {
				p.failing++
			}
		}
		if p.tried > 0 {
			all = append(all, p)
		}
	}
	return all
}

// podsText says whose loss an outage is, by what the pods said themselves: a clause, empty when none was asked.
func podsText(all []asked) string {
	var down []string
	tried, failing := 0, 0
	for _, p := range all {
		if p.down() {
			down = append(down, p.pod)
			tried, failing = tried+p.tried, failing+p.failing
		}
	}
	counts := fmt.Sprintf(" at the same time (%s of %s attempts failed)", units.Thousands(failing), units.Thousands(tried))
	switch {
	case len(all) == 0:
		return ""
	case len(down) == 0 && len(all) == 1:
		return "the pod " + all[0].pod + " answered at its own address all the while: the loss is the proxy's, or the network's on the way to it"
	case len(down) == 0:
		return fmt.Sprintf("all of %d pods answered at their own addresses all the while: the loss is the proxy's, or the network's on the way to it", len(all))
	case len(down) == len(all) && len(all) == 1:
		return "the pod " + down[0] + " failed at its own address" + counts + ": the loss is the backend's or the network's, not the proxy's"
	case len(down) == len(all):
		return fmt.Sprintf("all of %d pods failed at their own addresses%s: the loss is the backends' or the network's, not the proxy's", len(all), counts)
	}
	return fmt.Sprintf("%d of %d pods failed at their own addresses%s: what was sent to %s is no loss of the proxy's", len(down), len(all),
		counts, strings.Join(down, " and "))
}

func podReports(all []asked) []PodReport {
	out := []PodReport{}
	for _, p := range all {
		out = append(out, PodReport{Pod: p.pod, Node: p.node, Tried: p.tried, Failed: p.failing})
	}
	return out
}
