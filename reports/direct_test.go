package reports

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hitless/hitless/record"
)

const downFor = 600 * time.Millisecond

// asking is a run whose measured Service fails for a while on all nodes, beside lanes to the own addresses of its pods.
func asking() *lab {
	o := rolling{seed: 4, fallback: true, rollouts: 1}
	s := o.lab()
	s.faults = append(s.faults, fault{lane: 0, from: lostAt, to: lostAt + downFor, class: record.ConnectTimeout})
	return o.start(s)
}

// direct declares a lane to a pod's own address on a node, which fails from an instant on for a time.
func (s *lab) direct(id uint16, pod, node string, from, length time.Duration) {
	name := "pod-" + pod
	s.event(time.Second, record.KindLane, "", name, "lane "+name, "id", strconv.Itoa(int(id)), "name", name, "client", "client", "target", "10.244.1.9:8080",
		"protocol", "tcp-new", "policy", "fresh", "close", "fin", "rate", "100", "dialMs", "3000", "replyMs", "1000", "service", "web",
		"control", "true", "role", record.RolePod, "pod", pod, "node", node)
	begin, gap := baselineAt+4*time.Millisecond, 10*time.Millisecond
	for k := range 5500 {
		at := begin + time.Duration(k)*gap
		a := s.attempt(simLane{id: id, target: canaryAddress}, s.services[canaryAddress], uint64(k), at)
		a.Backend, a.Node = pod, node
		if at >= from && at < from+length {
			a = failedAttempt(record.Attempt{Lane: id, Seq: a.Seq, Intended: at, Start: a.Start, Source: a.Source}, record.ConnectTimeout)
		}
		s.attempts = append(s.attempts, a)
	}
}

// At that instant the only node in the table is node-2, with the new pod.
func TestPodsTellWhoseLossItIs(t *testing.T) {
	const never = time.Duration(0)
	for _, test := range []struct {
		name string
		lay  func(s *lab)
		want []PodReport
		says string
	}{
		{"nobody was asked", func(*lab) {}, []PodReport{}, ""},
		{"the pod answers all the while", func(s *lab) { s.direct(7, "web-0c7b-bbbb0", "node-2", never, never) },
			[]PodReport{{"web-0c7b-bbbb0", "node-2", 63, 0}}, "the pod web-0c7b-bbbb0 answered at its own address all the while: the loss is the proxy's, or the way's to it"},
		{"the pod fails as well", func(s *lab) { s.direct(7, "web-0c7b-bbbb0", "node-2", lostAt, downFor) },
			[]PodReport{{"web-0c7b-bbbb0", "node-2", 63, 60}}, "at the same time (60 of 63 attempts failed): the loss is the backend's or the network's, not the proxy's"},
		{"the pod failed before", func(s *lab) { s.direct(7, "web-0c7b-bbbb0", "node-2", lostAt-2*downFor, downFor) },
			[]PodReport{{"web-0c7b-bbbb0", "node-2", 63, 0}}, "all the while"},
		{"a moment at the edge explains nothing", func(s *lab) { s.direct(7, "web-0c7b-bbbb0", "node-2", lostAt, downFor/6) },
			[]PodReport{{"web-0c7b-bbbb0", "node-2", 63, 10}}, "all the while"},
		{"pods of other nodes cannot answer behind Local", func(s *lab) { s.direct(7, "web-x", "node-3", lostAt, downFor) }, []PodReport{}, ""},
		{"one of two fails", func(s *lab) {
			s.direct(7, "web-0c7b-bbbb0", "node-2", lostAt, downFor)
			s.direct(8, "web-y", "node-2", never, never)
		}, []PodReport{{"web-0c7b-bbbb0", "node-2", 63, 60}, {"web-y", "node-2", 63, 0}},
			"1 of 2 pods failed at their own addresses at the same time (60 of 63 attempts failed): what was sent to web-0c7b-bbbb0 is no loss of the proxy's"},
		{"both fail", func(s *lab) {
			s.direct(7, "web-0c7b-bbbb0", "node-2", lostAt, downFor)
			s.direct(8, "web-y", "node-2", lostAt, downFor)
		}, []PodReport{{"web-0c7b-bbbb0", "node-2", 63, 60}, {"web-y", "node-2", 63, 60}},
			"all of 2 pods failed at their own addresses at the same time (120 of 126 attempts failed): the loss is the backends' or the network's, not the proxy's"},
		{"both answer", func(s *lab) {
			s.direct(7, "web-0c7b-bbbb0", "node-2", never, never)
			s.direct(8, "web-y", "node-2", never, never)
		}, []PodReport{{"web-0c7b-bbbb0", "node-2", 63, 0}, {"web-y", "node-2", 63, 0}}, "all of 2 pods answered at their own addresses all the while"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := asking()
			s.late = func() time.Duration { return 100 * time.Microsecond }
			test.lay(s)
			r := s.report(t)
			checkSchema(t, r)
			if r.Verdict != Fail || len(r.Lanes) != 1 || len(r.Lanes[0].Outages) != 1 {
				t.Fatalf("%s %q with outages %+v; want a fail by one outage", r.Verdict, r.Reasons, r.Lanes[0].Outages)
			}
			o := r.Lanes[0].Outages[0]
			if diff := cmp.Diff(test.want, o.Pods); diff != "" {
				t.Errorf("pods (-want +got):\n%s", diff)
			}
			if said := strings.Contains(o.Cause.Text, "own address"); said != (test.says != "") || !strings.Contains(o.Cause.Text, test.says) {
				t.Errorf("the cause says %q, want %q in it", o.Cause.Text, test.says)
			}
		})
	}
}

// A thinned record tells the same of the pods as a whole one, and their good attempts take no room in it.
func TestPodsAreTheSameInAThinnedRecord(t *testing.T) {
	s := asking()
	s.direct(7, "web-0c7b-bbbb0", "node-2", lostAt, downFor)
	s.direct(8, "web-y", "node-2", 0, 0)
	whole := s.report(t)
	h := s.thinned(t, 0)
	thin, err := Build(h)
	if err != nil {
		t.Fatal(err)
	}
	if err := sameReport(whole, thin); err != nil {
		t.Error(err)
	}
	if err := CheckAgreement(h, thin); err != nil {
		t.Error(err)
	}
	buckets := map[uint16]int{}
	for e, err := range h.Entries() {
		if err != nil {
			t.Fatal(err)
		}
		if e.Bucket != nil {
			buckets[e.Bucket.Lane] += bucketAttempts(e.Bucket)
		}
	}
	if buckets[7] < 1000 || buckets[8] < 1000 {
		t.Errorf("attempts in buckets by lane: %v; those of pods are of 55 s at 100 a second, mostly good", buckets)
	}
}
