// Package guest is the runner inside the lab's kernel: it reads the plan, builds the lab, runs the scenario and writes the history.
// It runs as a child of the guest's first process, in a VM or in namespaces of the host.
package guest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path"
	"reflect"

	"github.com/hitless/hitless/lab/subject"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios"
)

// Plan is everything that determines a run.
type Plan struct {
	SchemaVersion int               `json:"schemaVersion"`
	Scenario      string            `json:"scenario"`
	Parameters    map[string]string `json:"parameters"`
	Seed          int64             `json:"seed"`
	Subject       string            `json:"subject"`
	Exec          *subject.Exec     `json:"exec,omitempty"`      // the subject, if a file describes it
	Next          *Next             `json:"next,omitempty"`      // the subject that the scenario changes to
	DaemonSet     *DaemonSet        `json:"daemonSet,omitempty"` // runs the subject; of LabScenario
	Images        bool              `json:"images,omitempty"`    // pods run the programs of their images; of LabScenario
	ControlPlane  string            `json:"controlPlane"`
	Nodes         int               `json:"nodes"`
	Rate          float64           `json:"rate"`
	Kernel        string            `json:"kernel,omitempty"`    // KernelHost, or empty in a VM
	Timeline      []byte            `json:"timeline,omitempty"`  // of the scenario timeline; see PackTimeline
	Objects       int               `json:"objects,omitempty"`   // that the timeline makes or replaces
	Capture       bool              `json:"capture,omitempty"`   // packets at the client and at each node
	Loop          bool              `json:"loop,omitempty"`      // requests of curl beside the lanes
	Manifests     []string          `json:"manifests,omitempty"` // of a Base: those of the subject, which are older than the pause
	Programs      string            `json:"programs,omitempty"`  // record.ProgramsReleased, or empty: upstream's programs were built
}

// Next is the subject that replaces another one during a run.
type Next struct {
	Subject  string `json:"subject"`
	Fallback string `json:"fallback"` // terminatingFallback: on or off
}

// DaemonSet makes a lab run its subject, a kube-proxy, in the pods of a DaemonSet.
type DaemonSet struct {
	Others []string `json:"others,omitempty"` // subjects whose images pods can run as well
}

// KernelHost is the kernel of a guest in namespaces of the host.
const KernelHost = "host"

// planVersion is the version of the plan that this program writes and reads.
const planVersion = 1

// Base is what the guest must know before its pause (vm.Pause). All plans with the same Base begin with the same cluster.
func (p Plan) Base() Plan {
	if !p.lab() {
		return Plan{Scenario: p.Scenario}
	}
	base := Plan{ControlPlane: p.ControlPlane, Nodes: p.Nodes, Manifests: p.manifests()}
	if f := p.family(); f != record.IPv4 { // the network is older than the pause
		base.Parameters = map[string]string{scenarios.AddressFamily.Key: string(f)}
	}
	return base
}

// family is the family of the lab's network. The plan of a guest that has not gone on yet has no parameters.
func (p Plan) family() record.Family {
	return cmp.Or(scenarios.Params(p.Parameters).Family(), record.IPv4)
}

// lab reports whether the plan runs a scenario in a lab.
func (p Plan) lab() bool {
	_, alone := standalones[p.Scenario]
	return !alone
}

// NeedsSubjects reports whether the guest needs the programs of the control plane and of the subjects.
func (p Plan) NeedsSubjects() bool { return p.lab() || standalones[p.Scenario].subjects }

// Marshal writes the plan; the same plan gives the same bytes.
func (p Plan) Marshal() ([]byte, error) {
	p.SchemaVersion = planVersion
	return json.Marshal(p)
}

// ScenarioEntry is the scenario of the plan, also of one with a timeline. The error is that of scenarios.Find, or of the timeline.
func (p Plan) ScenarioEntry() (scenarios.Scenario, error) {
	if len(p.Timeline) == 0 {
		return scenarios.Find(p.Scenario, p.Offers())
	}
	t, err := unpackTimeline(p.Timeline)
	if err != nil {
		return scenarios.Scenario{}, err
	}
	return scenarios.Replay(t), nil
}

// Offers are the capabilities of the plan's lab.
func (p Plan) Offers() scenarios.Offers { return Offers(p.ControlPlane, p.Kernel) }

// CheckHost returns an error that names the needs of the plan's scenario that a host does not offer.
func (p Plan) CheckHost() error {
	if err := p.CheckSubject(Offers(p.ControlPlane, KernelHost)); err != nil {
		return err
	}
	if !p.lab() {
		return nil
	}
	s, err := p.ScenarioEntry()
	if err != nil {
		return err
	}
	return s.Check(Offers(p.ControlPlane, KernelHost), p.Parameters)
}

// CheckSubject returns an error that names what the subject needs and the site does not offer.
func (p Plan) CheckSubject(offers scenarios.Offers) error {
	if !p.Exec.NeedsGroups() {
		return nil
	}
	return offers.CheckSubject("the subject "+p.Subject+" with its mount of the kind "+subject.Cgroup2, []scenarios.Capability{scenarios.NodeGroups})
}

// manifests are the files with objects of the API that the subject needs, also those of a Base.
func (p Plan) manifests() []string {
	if p.Exec == nil {
		return p.Manifests
	}
	return p.Exec.ManifestPaths()
}

// Spec is the subject of the plan.
func (p Plan) Spec() (subject.Spec, error) {
	if p.Exec != nil {
		return subject.FromExec(*p.Exec), nil
	}
	return subject.Parse(p.Subject)
}

// Specs are the other subjects of the DaemonSet; none without a DaemonSet.
func (d *DaemonSet) Specs() (all []subject.Spec, err error) {
	if d == nil {
		return nil, nil
	}
	for _, text := range d.Others {
		s, err := subject.Parse(text)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// programs are the subjects of the plan as the lab starts them. bundled is hitless itself, an Exec has its own path, and built
// programs are in Binaries.
func (p Plan) programs() ([]subject.Program, error) {
	spec, err := p.Spec()
	if err != nil {
		return nil, err
	}
	all := []subject.Program{{Spec: spec, Fallback: cmp.Or(scenarios.TerminatingFallback.Text(p.Parameters), spec.DefaultFallback())}}
	if p.Next != nil {
		next, err := subject.Parse(p.Next.Subject)
		if err != nil {
			return nil, err
		}
		all = append(all, subject.Program{Spec: next, Fallback: p.Next.Fallback})
	}
	others, err := p.DaemonSet.Specs()
	if err != nil {
		return nil, err
	}
	for _, other := range others {
		all = append(all, subject.Program{Spec: other, Fallback: other.DefaultFallback()})
	}
	for i := range all {
		all[i].Path = Program
		if all[i].Spec.Name == subject.KubeProxy {
			all[i].Path = path.Join(Binaries, all[i].Spec.Binary())
		}
	}
	return all, nil
}

// follows returns an error if the base is not that of the plan.
func (p Plan) follows(base Plan) error {
	if begun, asked := base.Base(), p.Base(); !reflect.DeepEqual(begun, asked) {
		return fmt.Errorf("this guest began as %+v and cannot continue as %+v: its snapshot belongs to another plan", begun, asked)
	}
	return nil
}

func readPlan(data []byte) (Plan, error) {
	var p Plan
	if err := json.Unmarshal(data, &p); err != nil {
		return p, fmt.Errorf("reading the plan: %w", err)
	}
	if p.SchemaVersion != planVersion {
		return p, fmt.Errorf("the plan has version %d; this program reads version %d", p.SchemaVersion, planVersion)
	}
	return p, nil
}
