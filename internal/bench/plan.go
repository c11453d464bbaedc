// Package bench measures the cost of a proxy for each number of Services: the time from a write to the API until the kernel serves
// the change, CPU, memory and netlink messages. It runs in the lab's kernel on the replay control plane and makes no connections.
//
// Each subject has a node of its own and gets the same objects and changes. A time starts at the write in the API server, which is
// part of this program, and ends when this program reads the change from IPVS or nftables. It reads at least every 0.2 ms or 0.5 %
// of the elapsed time.
package bench

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/hitless/hitless/lab/subject"
	"github.com/hitless/hitless/lab/topology"
)

// Scenario is the name of the benchmark as a scenario of a run's plan; its parameters are those of Plan.
const Scenario = "bench-proxier"

// ResultFile is the file with the rows in a run's directory.
const ResultFile = "bench/rows.json"

// The bounds of a plan.
const (
	steps         = 10    // least number of Services that are changed
	most          = 20000 // largest number of Services, by the address range
	messageCounts = 2     // messageCounts is how often the messages of a change are counted. The smallest count has no periodic sync in it.
)

// Plan is one benchmark.
type Plan struct {
	Subjects []Subject
	Services []int // how many, ascending
	Repeat   int   // measurements of each change; the result is their median
}

// Subject is a proxy, optionally with a minimum sync period.
type Subject struct {
	subject.Spec
	MinSync string // a duration; empty for the subject's default
}

// minSync separates a subject's name from its minimum sync period.
const minSync = "?minSync="

// String is the form that ParseSubject reads.
func (s Subject) String() string {
	if s.MinSync == "" {
		return s.Spec.String()
	}
	return s.Spec.String() + minSync + s.MinSync
}

// ParseSubject reads SUBJECT or SUBJECT?minSync=DURATION.
func ParseSubject(text string) (Subject, error) {
	name, period, has := strings.Cut(text, minSync)
	spec, err := subject.Parse(name)
	if err != nil {
		return Subject{}, err
	}
	every, err := time.ParseDuration(period)
	if err == nil && every < 0 {
		err = fmt.Errorf("%s is negative", period)
	}
	if has && err != nil {
		return Subject{}, fmt.Errorf("subject %q: %w; give a duration such as 0s after %s", text, err, minSync)
	}
	if spec.Exec != nil || spec.Mode == "iptables" || spec.Mode == "userspace" {
		return Subject{}, fmt.Errorf("subject %q: its kernel state cannot be read by the benchmark; give bundled or a kube-proxy in mode ipvs or nftables", text)
	}
	return Subject{spec, period}, nil
}

// Parameters encodes the plan as parameters of a run.
func (p Plan) Parameters() map[string]string {
	var subjects, services []string
	for _, s := range p.Subjects {
		subjects = append(subjects, s.String())
	}
	for _, n := range p.Services {
		services = append(services, strconv.Itoa(n))
	}
	return map[string]string{"subjects": strings.Join(subjects, ","), "services": strings.Join(services, ","), "repeat": strconv.Itoa(p.Repeat)}
}

// ParsePlan decodes Parameters.
func ParsePlan(parameters map[string]string) (Plan, error) {
	var p Plan
	for text := range strings.SplitSeq(parameters["subjects"], ",") {
		s, err := ParseSubject(text)
		if err != nil {
			return p, err
		}
		if v := p.KubeProxy(); v.Version != "" && s.Name == subject.KubeProxy && s.Version != v.Version {
			return p, fmt.Errorf("%s and %s: a benchmark can have one version of kube-proxy", s, v)
		}
		p.Subjects = append(p.Subjects, s)
	}
	for text := range strings.SplitSeq(parameters["services"], ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < steps || n > most || len(p.Services) > 0 && n <= p.Services[len(p.Services)-1] {
			return p, fmt.Errorf("%q Services: give ascending numbers from %d to %d", parameters["services"], steps, most)
		}
		p.Services = append(p.Services, n)
	}
	var err error
	if p.Repeat, err = strconv.Atoi(parameters["repeat"]); err != nil || p.Repeat < 1 || p.Repeat+messageCounts > steps {
		return p, fmt.Errorf("%q times: give a number from 1 to %d", parameters["repeat"], steps-messageCounts)
	}
	if n := len(p.Subjects) * len(p.Services); n > topology.MaxNodes {
		return p, fmt.Errorf("%d measurements: a lab has room for %d", n, topology.MaxNodes)
	}
	return p, nil
}

// KubeProxy returns the kube-proxy that the plan needs, or the bundled proxier when it needs none.
func (p Plan) KubeProxy() subject.Spec {
	for _, s := range p.Subjects {
		if s.Name == subject.KubeProxy {
			return s.Spec
		}
	}
	return subject.Bundled
}
