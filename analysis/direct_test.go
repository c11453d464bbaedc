package analysis

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hitless/hitless/record/recordtest"
)

// At that instant the only node in the table is node-2, with the new pod.
func TestPodsTellWhoseLossItIs(t *testing.T) {
	const never = time.Duration(0)
	for _, test := range []struct {
		name string
		lay  func(s *recordtest.Lab)
		want []PodReport
		says string
	}{
		{"nobody was asked", func(*recordtest.Lab) {}, []PodReport{}, ""},
		{"the pod answers all the while", func(s *recordtest.Lab) { s.Direct(7, "web-0c7b-bbbb0", "node-2", never, never) },
			[]PodReport{{"web-0c7b-bbbb0", "node-2", 63, 0}}, "the pod web-0c7b-bbbb0 answered at its own address all the while: the loss is the proxy's, or the network's on the way to it"},
		{"the pod fails as well", func(s *recordtest.Lab) {
			s.Direct(7, "web-0c7b-bbbb0", "node-2", recordtest.LostAt, recordtest.DownFor)
		},
			[]PodReport{{"web-0c7b-bbbb0", "node-2", 63, 60}}, "at the same time (60 of 63 attempts failed): the loss is the backend's or the network's, not the proxy's"},
		{"the pod failed before", func(s *recordtest.Lab) {
			s.Direct(7, "web-0c7b-bbbb0", "node-2", recordtest.LostAt-2*recordtest.DownFor, recordtest.DownFor)
		},
			[]PodReport{{"web-0c7b-bbbb0", "node-2", 63, 0}}, "all the while"},
		{"a moment at the edge explains nothing", func(s *recordtest.Lab) {
			s.Direct(7, "web-0c7b-bbbb0", "node-2", recordtest.LostAt, recordtest.DownFor/6)
		},
			[]PodReport{{"web-0c7b-bbbb0", "node-2", 63, 10}}, "all the while"},
		{"pods of other nodes cannot answer behind Local", func(s *recordtest.Lab) { s.Direct(7, "web-x", "node-3", recordtest.LostAt, recordtest.DownFor) }, []PodReport{}, ""},
		{"one of two fails", func(s *recordtest.Lab) {
			s.Direct(7, "web-0c7b-bbbb0", "node-2", recordtest.LostAt, recordtest.DownFor)
			s.Direct(8, "web-y", "node-2", never, never)
		}, []PodReport{{"web-0c7b-bbbb0", "node-2", 63, 60}, {"web-y", "node-2", 63, 0}},
			"1 of 2 pods failed at their own addresses at the same time (60 of 63 attempts failed): what was sent to web-0c7b-bbbb0 is no loss of the proxy's"},
		{"both fail", func(s *recordtest.Lab) {
			s.Direct(7, "web-0c7b-bbbb0", "node-2", recordtest.LostAt, recordtest.DownFor)
			s.Direct(8, "web-y", "node-2", recordtest.LostAt, recordtest.DownFor)
		}, []PodReport{{"web-0c7b-bbbb0", "node-2", 63, 60}, {"web-y", "node-2", 63, 60}},
			"all of 2 pods failed at their own addresses at the same time (120 of 126 attempts failed): the loss is the backends' or the network's, not the proxy's"},
		{"both answer", func(s *recordtest.Lab) {
			s.Direct(7, "web-0c7b-bbbb0", "node-2", never, never)
			s.Direct(8, "web-y", "node-2", never, never)
		}, []PodReport{{"web-0c7b-bbbb0", "node-2", 63, 0}, {"web-y", "node-2", 63, 0}}, "all of 2 pods answered at their own addresses all the while"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := recordtest.Asking()
			s.Late = func() time.Duration { return 100 * time.Microsecond }
			test.lay(s)
			r := reportOf(t, s)
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
	s := recordtest.Asking()
	s.Direct(7, "web-0c7b-bbbb0", "node-2", recordtest.LostAt, recordtest.DownFor)
	s.Direct(8, "web-y", "node-2", 0, 0)
	whole := reportOf(t, s)
	h := s.Thinned(t, 0)
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
			buckets[e.Bucket.Lane] += e.Bucket.Attempts()
		}
	}
	if buckets[7] < 1000 || buckets[8] < 1000 {
		t.Errorf("attempts in buckets by lane: %v; those of pods are of 55 s at 100 a second, mostly good", buckets)
	}
}
