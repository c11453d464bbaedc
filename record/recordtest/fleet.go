package recordtest

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/hitless/hitless/record"
)

// FleetLab is a run without loss, with workers beside the lane of this machine, each with a clock that is off by up to 3 ms.
func FleetLab(workers int) *Lab {
	o := Clean()
	s := o.Start(o.Lab())
	for i := range workers {
		s.AddWorker(100+i, workers, BaselineAt-500*time.Millisecond, o.EndAt())
	}
	return s
}

func (s *Lab) AddWorker(id, workers int, from, to time.Duration) {
	name := fmt.Sprintf("fleet-%d", id)
	s.Probe(Lane{ID: uint16(id), Name: name, Target: WebAddress, Rate: 10, From: from, To: to})
	s.Declared(id)["worker"], s.Declared(id)["workers"] = name, strconv.Itoa(workers)
	s.Event(2*time.Second, record.KindClockBound, "", name, "compared", "lane", strconv.Itoa(id), "boundNs", "3000000")
}

// Declared is the declaration of a lane.
func (s *Lab) Declared(id int) map[string]string {
	i := slices.IndexFunc(s.Events, func(e Event) bool { return e.Kind == record.KindLane && e.Attrs["id"] == strconv.Itoa(id) })
	return s.Events[i].Attrs
}

// Kill ends a worker at an instant, with every third of the attempts of the second before: those were under way.
func (s *Lab) Kill(id int, at time.Duration) (first record.Attempt) {
	s.Attempts = slices.DeleteFunc(s.Attempts, func(a record.Attempt) bool {
		gone := int(a.Lane) == id && (a.Intended > at || a.Intended > at-time.Second && a.Seq%3 == 0)
		if gone && (first.Intended == 0 || a.Seq < first.Seq) {
			first = a
		}
		return gone
	})
	return first
}

func (s *Lab) State(id int, first record.Attempt, to time.Duration) {
	s.Event(Clean().EndAt()+time.Second, record.KindMissingRecord, "", "fleet-"+strconv.Itoa(id), "its pod is gone", "lane", strconv.Itoa(id),
		"fromNs", strconv.Itoa(int(first.Intended)), "toNs", strconv.Itoa(int(to)), "seq", strconv.Itoa(int(first.Seq)))
}
