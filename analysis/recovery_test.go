package analysis

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/record/recordtest"
)

// checkedAt is when the recovery check of the runs below begins.
const checkedAt = 90 * time.Second

// recovered adds the result of a recovery check.
func recovered(s *recordtest.Lab, at time.Duration, node, state, change string, took time.Duration) {
	attrs := []string{"state", state}
	if change != "" {
		attrs = append(attrs, "change", change)
	}
	if took > 0 {
		attrs = append(attrs, "tookNs", strconv.FormatInt(int64(took), 10))
	}
	s.Event(at, record.KindRecovery, node, "recovery", node+" "+state, attrs...)
}

// allFollow adds a check in which the proxies of all nodes but one follow both changes.
func allFollow(s *recordtest.Lab, at time.Duration, but string) {
	for _, node := range recordtest.NodeNames {
		if node != but {
			recovered(s, at+time.Second, node, "added", "", 700*time.Millisecond)
			recovered(s, at+2*time.Second, node, "removed", "", 1200*time.Millisecond)
		}
	}
}

func started(s *recordtest.Lab, at time.Duration, node string) {
	s.Event(at, record.KindProxy, node, "bundled", "the proxy on "+node+" exited", "state", "exited")
	s.Event(at+time.Second, record.KindProxy, node, "bundled", "the proxy on "+node+" started", "state", "started")
}

func nodeRecovery(t *testing.T, r *Report, node string) NodeRecovery {
	t.Helper()
	if r.Recovery == nil {
		t.Fatal("the report has no recovery check")
	}
	i := slices.IndexFunc(r.Recovery.Nodes, func(n NodeRecovery) bool { return n.Node == node })
	if i < 0 {
		t.Fatalf("%s is not among %+v", node, r.Recovery.Nodes)
	}
	return r.Recovery.Nodes[i]
}

// A proxy that does not follow a change fails a run without losses, and the report has the last time at which it followed one.
func TestRecoveryDecides(t *testing.T) {
	for name, c := range map[string]struct {
		happens func(s *recordtest.Lab)
		want    Verdict
		since   time.Duration // of node-2, in a failed run
	}{
		"all follow": {func(s *recordtest.Lab) { allFollow(s, checkedAt, "") }, Pass, 0},
		"dead since its start": {func(s *recordtest.Lab) {
			started(s, 60*time.Second, "node-2")
			recovered(s, checkedAt+time.Second, "node-2", "failed", "added", time.Second)
			allFollow(s, checkedAt, "node-2")
		}, Fail, 61 * time.Second},
		"its table changed after its start": {func(s *recordtest.Lab) {
			started(s, 60*time.Second, "node-2")
			s.Look("node-2", 63*time.Second, 64*time.Second, "10.244.1.9:8080=1")
			recovered(s, checkedAt+time.Second, "node-2", "failed", "added", time.Second)
			allFollow(s, checkedAt, "node-2")
		}, Fail, 64 * time.Second},
		"the look that found a table first is no change": {func(s *recordtest.Lab) {
			started(s, 60*time.Second, "node-2")
			s.Event(64*time.Second, record.KindKernelTable, "node-2", "table", "looked", "table", "ipvs", "address", "203.0.113.10", "port", "80", "protocol", "tcp", "state", "present", "backends", "")
			recovered(s, checkedAt+time.Second, "node-2", "failed", "added", time.Second)
		}, Fail, 61 * time.Second},
		"it exited": {func(s *recordtest.Lab) {
			s.Event(2*time.Second, record.KindProxy, "node-2", "bundled", "started", "state", "started")
			s.Event(70*time.Second, record.KindProxy, "node-2", "bundled", "exited", "state", "exited")
			recovered(s, checkedAt, "node-2", "exited", "", 0)
			allFollow(s, checkedAt, "node-2")
		}, Fail, 70 * time.Second},
		"it keeps a removed endpoint": {func(s *recordtest.Lab) {
			recovered(s, checkedAt, "node-2", "added", "", time.Second)
			recovered(s, checkedAt+3*time.Second, "node-2", "failed", "removed", 2*time.Second)
			allFollow(s, checkedAt, "node-2")
		}, Fail, checkedAt},
		"it gives health checks the wrong answer, and follows a test change": {func(s *recordtest.Lab) {
			recovered(s, 80*time.Second, "node-2", "misreported", "", 30*time.Second)
			allFollow(s, checkedAt, "")
		}, Fail, 50 * time.Second},
		"it gives health checks the wrong answer, and there is no check": {func(s *recordtest.Lab) {
			recovered(s, 80*time.Second, "node-2", "misreported", "", 30*time.Second)
			recovered(s, checkedAt, "", "off", "", 0)
		}, Fail, 50 * time.Second},
		"nothing was checked": {func(s *recordtest.Lab) {
			for _, node := range recordtest.NodeNames {
				recovered(s, checkedAt, node, "unchecked", "", 0)
			}
		}, Invalid, 0},
		"one was not checked": {func(s *recordtest.Lab) {
			recovered(s, checkedAt, "node-2", "unchecked", "", 0)
			allFollow(s, checkedAt, "node-2")
		}, Pass, 0},
		"it was turned off": {func(s *recordtest.Lab) { recovered(s, checkedAt, "", "off", "", 0) }, Pass, 0},
	} {
		t.Run(name, func(t *testing.T) {
			o := recordtest.Clean()
			s := o.Lab()
			c.happens(s)
			r := reportOf(t, o.Start(s))
			if r.Verdict != c.want {
				t.Fatalf("%s: %q, want %s", r.Verdict, r.Reasons, c.want)
			}
			if c.want != Fail {
				return
			}
			n := nodeRecovery(t, r, "node-2")
			if !n.red() || n.Since == nil || *n.Since != c.since.Seconds() {
				t.Errorf("node-2 is %+v, want failed since %s", n, c.since)
			}
			if !slices.Contains(r.Reasons, n.Text) || !strings.Contains(r.Headline(), "node-2") {
				t.Errorf("the headline %q and the reasons %q do not name the proxy", r.Headline(), r.Reasons)
			}
		})
	}
}

// Measured traffic that reaches a new pod over a node shows that its proxy has followed.
func TestRecoverySeesNewBackends(t *testing.T) {
	o := recordtest.Clean()
	s := o.Lab()
	started(s, 30*time.Second, "node-3")
	recovered(s, checkedAt+time.Second, "node-3", "failed", "added", time.Second)
	n := nodeRecovery(t, reportOf(t, o.Start(s)), "node-3") // the second rollout brings a pod to it
	if n.Since == nil || *n.Since < 50 || *n.Since > 60 {
		t.Errorf("want that node-3 followed last when the pod of the second rollout came: %s", n.Text)
	}
}

// Of several checks the first failure of a node stays, though a later check succeeds.
func TestRecoveryOfEachCheck(t *testing.T) {
	o := recordtest.Clean()
	s := o.Lab()
	recovered(s, 60*time.Second, "node-2", "failed", "added", time.Second)
	allFollow(s, 60*time.Second, "node-2")
	allFollow(s, checkedAt, "")
	r := reportOf(t, o.Start(s))
	if n := nodeRecovery(t, r, "node-2"); r.Verdict != Fail || n.State != RecoveryFailed || r.Recovery.Checks != 2 {
		t.Errorf("%s after %d checks, node-2 %+v", r.Verdict, r.Recovery.Checks, n)
	}
	if n := nodeRecovery(t, r, "node-1"); n.State != RecoveryFollowed || n.TookMs != 1200 {
		t.Errorf("node-1 is %+v, want followed, within 1200 ms at most", n)
	}
}

// A check that was not made is none in which a proxy followed. A last check of no proxy proves nothing about the end of the run.
func TestRecoveryTellsChecksThatWereNotMade(t *testing.T) {
	for name, c := range map[string]struct {
		unchecked []string
		first     bool // in the first check too
		want      Verdict
		says, not string
	}{
		"all were made":       {nil, false, Pass, "3 of 3 nodes applied a test change within 1.20 s, in each of 2 checks", "was not checked"},
		"one was not made":    {[]string{"node-2"}, false, Pass, "node-2 unchecked (in 1 of 2 checks)", "in each of 2 checks"},
		"the last is of none": {recordtest.NodeNames, false, Invalid, "the recovery check checked no proxy", "in each of 2 checks"},
		"both are of none":    {recordtest.NodeNames, true, Invalid, "the recovery check checked no proxy", "in each"},
	} {
		t.Run(name, func(t *testing.T) {
			o := recordtest.Clean()
			s := o.Lab()
			if !c.first {
				allFollow(s, 60*time.Second, "")
			}
			for _, node := range recordtest.NodeNames {
				if c.first {
					recovered(s, 60*time.Second, node, "unchecked", "", 0)
				}
				if slices.Contains(c.unchecked, node) {
					recovered(s, checkedAt, node, "unchecked", "", 0)
				} else {
					recovered(s, checkedAt+time.Second, node, "added", "", 700*time.Millisecond)
					recovered(s, checkedAt+2*time.Second, node, "removed", "", 1200*time.Millisecond)
				}
			}
			r := reportOf(t, o.Start(s))
			told := strings.Join(append(slices.Clone(r.Reasons), r.Recovery.Text), "\n")
			if r.Verdict != c.want || r.Recovery.Checks != 2 || !strings.Contains(told, c.says) || strings.Contains(told, c.not) {
				t.Errorf("%s after %d checks, want %s with %q and without %q:\n%s", r.Verdict, r.Recovery.Checks, c.want, c.says, c.not, told)
			}
		})
	}
}
