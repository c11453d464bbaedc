package upgrade

import (
	"fmt"
	"strings"
	"time"
)

// The first seed's upgrade: kube-proxy of a version without kubernetes#71071, and the one that hangs.
const (
	seedOld = "kube-proxy@v1.11.10/ipvs"
	seedNew = "kube-proxy@v1.12.2/ipvs"
)

// The times of firstSeed, from the end of the baseline.
const (
	startsAt = 42 * time.Second // the first node's proxy starts again; the second's, one minute later
	churnsAt = 3*time.Minute + startsAt
	churns   = 19 // minutes with changes
	seedEnds = 24 * time.Minute
)

// The load balancer checks nodes as the AWS provider of those versions set up a classic ELB: a connection to the NodePort each 10 s, six
// failures to remove a node, two successes to add it.
const (
	checkEvery = 10 * time.Second
	checkFall  = 6
)

// firstSeed is the timeline of the upgrade on two nodes, under traffic and rollouts. to is the subject that replaces the first one, or
// `subject` for itself.
//
// A proxy's graceful termination works at each full minute since its start. Both proxies start at the same second of a minute, and the changes
// of another Service's endpoints begin then, so that a sync is under way. One pod drains all the time, so that this work takes long.
func firstSeed(to string) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	at := func(t time.Duration, format string, args ...any) { line("+%v "+format, append([]any{t}, args...)...) }
	line("hitless timeline 1\nnodes 2\nrate 2")
	for _, set := range []string{"replicas=1", "trafficPolicy=Cluster", "checkTarget=nodePort", fmt.Sprint("checkInterval=", checkEvery),
		fmt.Sprint("checkFall=", checkFall), "checkRise=2", "readinessPeriod=1s", "shutdownDelay=2s", "gracePeriod=10s", "baseline=10s",
		"briefCanary=on", "idleCollection=off"} {
		line("set %s", set)
	}
	roll := func(t time.Duration) {
		at(t, "workload rollout web")
		at(t, "expect rolled-out web")
	}
	roll(10 * time.Second) // behind the old proxies
	for i := range 2 {
		node := fmt.Sprint("node-", i+1)
		start := startsAt + time.Duration(i)*time.Minute
		at(start-2*time.Second, "proxy stop %s", node)
		at(start-2*time.Second, "proxy change %s to=%s", node, to)
		at(start, "proxy start %s", node)
		if i == 0 {
			roll(start + 28*time.Second) // behind both versions
		}
	}
	ring := 0
	addresses := func() string {
		var all []string
		for i := range 4 {
			all = append(all, fmt.Sprintf("192.0.2.%d", (ring+i)%250+1))
		}
		ring++
		return strings.Join(all, ",")
	}
	drains := startsAt + 70*time.Second
	at(drains, "endpoints create busy addresses=%s", addresses())
	at(drains, "workload deploy drained replicas=1 policy=Cluster gated=on ports=100")
	at(drains, "client open drained each=3")
	at(drains, "pod unready drained#1")
	at(drains, "expect unready drained#1")
	for minute := range churns {
		from := churnsAt + time.Duration(minute)*time.Minute
		for i := range 20 {
			at(from+time.Duration(i)*100*time.Millisecond, "endpoints set busy addresses=%s", addresses())
		}
		if minute%3 == 0 {
			roll(from + 30*time.Second)
		}
	}
	at(seedEnds, "end")
	return b.String()
}
