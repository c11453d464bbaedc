package museum

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/record"
)

// Record is a run's record as signatures use it.
type Record struct {
	Report  *analysis.Report
	Events  []record.Event  // sorted by time
	Answers []Answers       // of the measured lanes and those to a port without a Service, sorted by lane and time
	Moves   []analysis.Move // of the flow of a udp-sticky lane
}

// Answers are consecutive answered attempts of one lane, on one path, by one pod that saw one address of the client.
type Answers struct {
	Protocol    string        // of the lane; record.RoleUnserved of a lane with that role
	Node        string        // path
	Pod         string        // empty where that is not known
	Client      string        // address that the pod saw, see record.Attempt
	First, Last time.Duration // when the first and the last of these attempts started
	Count       int
}

// Open reads the record of a run.
func Open(h *record.History) (*Record, error) {
	a, err := analysis.New(h)
	if err != nil {
		return nil, analysis.Unreadable(h, err)
	}
	r := &Record{Report: a.Report(), Events: a.Events}
	for _, l := range a.Lanes {
		if !l.Control || l.Role == record.RoleUnserved {
			r.readLane(a, l)
		}
	}
	return r, nil
}

// readLane adds the Answers and Moves of a lane's attempts.
func (r *Record) readLane(a *analysis.Analysis, l *analysis.Lane) {
	last := map[Answers]int{} // index of the newest entry of a path and pod
	protocol := cmp.Or(l.Role, l.Protocol)
	if l.Protocol == record.ProtocolSticky {
		r.Moves = append(r.Moves, a.Moves(l)...)
	}
	for i := range l.Records {
		s := &l.Records[i]
		if s.Class != record.OK || s.Backend == 0 && l.Protocol != record.ProtocolDial {
			continue
		}
		at, by := s.Start(), a.Backends[s.Backend].Name
		r.addAnswer(last, Answers{Protocol: protocol, Node: a.Nodes[s.Node], Pod: by, Client: a.Clients[s.Client]}, at, int(s.N))
	}
}

// silence is the least time without an answer that ends an entry of Answers.
const silence = 2 * time.Second

// addAnswer adds answered attempts to the newest entry of their path and pod, or begins another.
func (r *Record) addAnswer(last map[Answers]int, key Answers, at time.Duration, n int) {
	i, known := last[key]
	if !known || at-r.Answers[i].Last > silence {
		i = len(r.Answers)
		last[key] = i
		fresh := key
		fresh.First = at
		r.Answers = append(r.Answers, fresh)
	}
	r.Answers[i].Last = at
	r.Answers[i].Count += n
}

// phase returns when a phase of the run began; the end of the run if it did not.
func (r *Record) phase(name string) time.Duration {
	for _, e := range r.Events {
		if e.Kind() == record.KindPhase && e.Object == name {
			return e.At
		}
	}
	return fromSeconds(r.Report.Run.Duration)
}

// answered reports whether a protocol's lanes got an answer between two times, on the path over a node; on any path if it is empty.
func (r *Record) answered(protocol, node string, from, to time.Duration) bool {
	return slices.ContainsFunc(r.Answers, func(a Answers) bool {
		return a.Protocol == protocol && (node == "" || a.Node == node) && a.First <= to && a.Last >= from
	})
}

// member reports whether a node was in the membership of the measured Service from one time to the end.
func (r *Record) member(node string, from time.Duration) bool {
	end := r.end()
	never := end + 1
	since := never
	for _, e := range r.Events {
		b, is := e.Body.(record.Membership)
		switch {
		case !is || e.At > end || !r.measures(b.Service):
		case slices.Contains(b.Nodes, node):
			since = min(since, e.At)
		default:
			since = never
		}
	}
	return since <= from
}

// measures reports whether a Service has a measured lane.
func (r *Record) measures(service string) bool {
	return slices.ContainsFunc(r.Events, func(e record.Event) bool {
		l, is := e.Body.(record.Lane)
		return is && !l.Control && withoutNamespace(l.Service) == withoutNamespace(service)
	})
}

// detects reports whether the run could have detected a loss of this length on the path over one node.
func (r *Record) detects(loss time.Duration) bool {
	floor := r.Report.DetectionFloor
	return floor.Ms != nil && *floor.Ms <= millis(loss) && (floor.NodeMs == nil || *floor.NodeMs <= millis(loss))
}

// readyAt returns the nodes of the measured workload's pods that are ready at a time, by address.
func (r *Record) readyAt(at time.Duration) map[string]string {
	nodes := map[string]string{}
	for _, e := range r.Events {
		switch b, is := e.Body.(record.Pod); {
		case !is || e.At > at || !strings.HasPrefix(b.Pod, "web-"):
		case b.State == record.PodReady:
			nodes[b.IP] = b.Node
		default:
			delete(nodes, b.IP)
		}
	}
	return nodes
}

// namesPods is a signature that tells nothing of a run in which the step of a timeline does not name the run's pods: address to node.
func namesPods(step string, pods map[string]string, signature func(*Record) Finding) func(*Record) Finding {
	return func(r *Record) Finding {
		for _, s := range r.steps(step) {
			ready := r.readyAt(s.begin)
			for _, address := range slices.Sorted(maps.Keys(pods)) {
				if ready[address] != pods[address] {
					return cannotTell("step %q names the pod %s of %s; ready pods were at %v", s.name, address, pods[address], ready)
				}
			}
		}
		return signature(r)
	}
}

// onReplay is a signature that tells nothing of a run on a real control plane. Its API server changes or refuses the objects of the trigger.
func onReplay(signature func(*Record) Finding) func(*Record) Finding {
	return func(r *Record) Finding {
		if got := r.Report.Run.ControlPlane; got != record.ControlReplay {
			return cannotTell("the run's control plane is %s; the trigger needs --controlplane %s", got, record.ControlReplay)
		}
		return signature(r)
	}
}

// open reports whether a pod had an open connection that got a reply before the scenario.
func (r *Record) open(pod string) bool {
	scenario := r.phase("scenario")
	return slices.ContainsFunc(r.Answers, func(a Answers) bool { return a.Protocol == record.ProtocolLong && a.Pod == pod && a.First < scenario })
}
