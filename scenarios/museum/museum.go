// Package museum is the catalogue of historical proxy bugs that dropped connections. Each entry has the scenario that triggers the bug
// and its signature, a pure function of a run's record. A run can fail for other reasons, so a finding is not the subject's verdict.
package museum

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/semver"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios"
	"github.com/hitless/hitless/scenarios/timeline"
	"github.com/hitless/hitless/scenarios/values"
)

// Entry is one bug. A new entry needs a value in All and a signature.
type Entry struct {
	ID       string   // issue tracker and number, such as k8s-85643; a name when there is no issue
	Title    string   // one line: what drops connections and when
	Issue    string   // address of the issue or pull request that describes the bug; empty when it was not reported
	Fix      string   // address of the change that fixes it; empty for none
	Affected string   // versions that have the bug
	Fixed    string   // the version, and the change if it is known
	Look     string   // one or two sentences: what a report of a run with the bug shows
	Modes    []string // modes of proxies that can have the bug; empty for all
	// Until is the first version of kube-proxy that need not read what the trigger writes, because no supported upgrade leaves it; the bundled
	// proxier need not either. Empty for none.
	Until string
	// Bad has the bug, and Good is the version or the mode next to it that does not.
	Bad, Good Specimen

	Scenario string
	Set      map[string]string  // parameters of the scenario that the bug needs with another value than the default, or with this one above all
	Free     []string           // parameters that a call may set, because the signature reads them from the record; see Needs
	Timeline *timeline.Timeline // steps of the scenario timeline; nil for every other scenario
	Rate     float64            // attempts per second that show a loss as short as the bug's; 0 for any
	Nodes    int                // nodes of the run; 0 for any, and the committed runs have three. A timeline has its own
	// Timelines reports whether the signature itself checks all steps that the bug needs. It can then judge the record of a timeline.
	Timelines bool
	// Signature searches a valid run of the scenario for the bug.
	Signature func(r *Record) Finding
}

// upstream is the repository of kube-proxy.
const upstream = "https://github.com/kubernetes/kubernetes"

// The modes of kube-proxy. The bundled proxier has mode ipvs.
const (
	iptables = "iptables"
	ipvs     = "ipvs"
	nftables = "nftables"
)

const bundled = "bundled"

// Specimen is a subject, and parameters of its run besides those of the entry.
type Specimen struct {
	Subject string
	Set     map[string]string
}

// usualRate is the rate of scenarios whose losses last for long, in attempts per second and lane.
const usualRate = 20

// UsualRate is the rate of the committed runs of an entry that is a scenario, in attempts per second and lane. A timeline has its own.
func (e Entry) UsualRate() float64 { return max(usualRate, e.Rate) }

// All returns the entries, sorted by id.
func All() []Entry {
	all := slices.Concat(deletedServices(), staleFlows(), stalledSyncs(), policies(), graceful())
	slices.SortFunc(all, func(x, y Entry) int { return cmp.Compare(x.ID, y.ID) })
	return all
}

// Unfixed reports whether no version of kube-proxy is without the bug in the same mode.
func (e Entry) Unfixed() bool { return strings.HasPrefix(e.Fixed, notFixed) }

// notFixed begins Fixed of a bug without a fixed version.
const notFixed = "not fixed"

// NodesNeeded is the number of nodes of the runs of an entry; 0 for any.
func (e Entry) NodesNeeded() int {
	if e.Timeline != nil {
		return e.Timeline.Nodes
	}
	return e.Nodes
}

// TriggerSha256 identifies what the runs of the entry do to a proxy. An answer with another one is not about the entry as it is now.
func (e Entry) TriggerSha256() string {
	parts := append([]string{e.Scenario, fmt.Sprint(e.Rate)}, settings(e.Set)...)
	if e.Timeline != nil {
		parts = append(parts, e.Timeline.String())
	} else if e.Nodes > 0 {
		parts = append(parts, fmt.Sprint(e.Nodes, " nodes"))
	}
	sum := sha256.Sum256([]byte(strings.Join(parts, "\n")))
	return hex.EncodeToString(sum[:])
}

// Applies returns why a subject, whose proxy has a mode, cannot have the bug; empty if it can. A proxy of an unknown mode, which is empty, can
// have the bugs of all modes.
func (e Entry) Applies(subject, mode string) (whyNot string) {
	version := kubeProxyVersion(subject)
	switch {
	case mode != "" && len(e.Modes) > 0 && !slices.Contains(e.Modes, mode):
		return "the bug is one of mode " + strings.Join(e.Modes, " or ")
	case e.Until != "" && (subject == bundled || version != "" && semver.Compare(version, e.Until) >= 0):
		return "kube-proxy from " + e.Until + " on and the bundled proxier need not read what the trigger writes: no supported upgrade leaves it"
	}
	return ""
}

// SetOf are the parameters of the specimen with the bug, for a subject. Where they name the specimen's version of kube-proxy, they name the
// subject's.
func (e Entry) SetOf(subject string) map[string]string {
	set := map[string]string{}
	for key, value := range e.Bad.Set {
		if version := kubeProxyVersion(subject); version != "" {
			value = strings.ReplaceAll(value, "kube-proxy@"+kubeProxyVersion(e.Bad.Subject)+"/", "kube-proxy@"+version+"/")
		}
		set[key] = value
	}
	return set
}

// kubeProxyVersion is the version in the name of a subject; empty for other subjects than kube-proxy.
func kubeProxyVersion(subject string) string {
	rest, is := strings.CutPrefix(subject, "kube-proxy@")
	if !is {
		return ""
	}
	version, _, _ := strings.Cut(rest, "/")
	return version
}

// Find returns the entry with this id. The error names a known id that is similar, or tells how to list all.
func Find(id string) (Entry, error) {
	var ids []string
	for _, e := range All() {
		if e.ID == id {
			return e, nil
		}
		ids = append(ids, e.ID)
	}
	help := ""
	if near := values.Nearest(id, ids); near != "" {
		help = "did you mean " + near + "? "
	}
	return Entry{}, fmt.Errorf("unknown bug %q; %s`hitless museum list` lists all %d", id, help, len(ids))
}

// Answer is the result of a search for a bug.
type Answer string

const (
	// Seen means that the run shows the bug's signature.
	Seen Answer = "seen"
	// NotSeen means that the run triggered the bug's conditions and could have detected it, but does not show its signature.
	NotSeen Answer = "not seen"
	// CannotTell means that the run is invalid, did not trigger the bug's conditions, or could not have detected it.
	CannotTell Answer = "cannot tell"
	// DoesNotApply means that a proxy of the subject's mode cannot have the bug, or that the subject cannot run its trigger.
	DoesNotApply Answer = "does not apply"
)

// CountText tells how many bugs have each answer.
func CountText(answers []Answer) string {
	n := map[Answer]int{}
	for _, a := range answers {
		n[a]++
	}
	return fmt.Sprintf("%d seen, %d not seen, %d cannot tell, %d do not apply", n[Seen], n[NotSeen], n[CannotTell], n[DoesNotApply])
}

// ExitCode returns the exit code of a search for bugs: 1 when any was seen, else 3 when any run cannot tell or no bug applies, else 0.
func ExitCode(answers ...Answer) int {
	switch {
	case slices.Contains(answers, Seen):
		return 1
	case slices.Contains(answers, CannotTell) || !slices.Contains(answers, NotSeen):
		return 3
	}
	return 0
}

// Finding is an answer with its reasons.
type Finding struct {
	Answer  Answer
	Reasons []string
}

func cannotTell(format string, args ...any) Finding {
	return Finding{CannotTell, []string{fmt.Sprintf(format, args...)}}
}

// Judge searches a record for the bug. The answer is CannotTell for an invalid or skipped run, another scenario or other parameters.
func (e Entry) Judge(r *Record) Finding {
	if v := r.Report.Verdict; v != analysis.Pass && v != analysis.Fail {
		return Finding{CannotTell, append([]string{"the run is " + string(v)}, r.Report.Reasons...)}
	}
	if s := r.Report.Run.Scenario; s != e.Scenario && (s != scenarios.ReplayName || !e.Timelines) {
		return cannotTell("the run's scenario is %s; %s needs %s", r.Report.Run.Scenario, e.ID, e.Scenario)
	}
	if name, missing := e.missingStep(r); missing {
		return cannotTell("the run has no step %q; %s needs it", name, e.ID)
	}
	if f := e.otherSetting(r); f != nil {
		return *f
	}
	if at, lossy := r.lossBefore(); lossy {
		return cannotTell("the baseline is not clean: a measured lane lost connections at +%.3f s, before the scenario", at)
	}
	return e.Signature(r)
}

// otherSetting tells which setting of a run could hide or fake the bug; nil for none. A timeline does not have all parameters of a scenario.
func (e Entry) otherSetting(r *Record) *Finding {
	cannot := func(format string, args ...any) *Finding { f := cannotTell(format, args...); return &f }
	fixed := e.Needs()
	for _, key := range slices.Sorted(maps.Keys(fixed)) {
		got, has := r.Report.Run.Parameters[key]
		if _, own := e.Set[key]; got != fixed[key] && (has || own) {
			return cannot("the run has %s=%s; %s needs %s=%s", key, got, e.ID, key, fixed[key])
		}
	}
	if n, need := r.Report.Run.Nodes, e.NodesNeeded(); need > 0 && n > 0 && n != need {
		return cannot("the run has %d nodes; %s needs %d", n, e.ID, need)
	}
	return nil
}

// missingStep returns the first step of the entry's timeline that the run has not ended.
func (e Entry) missingStep(r *Record) (name string, missing bool) {
	if e.Timeline == nil {
		return "", false
	}
	for _, s := range e.Timeline.Steps {
		if s.Verb != timeline.End && !slices.ContainsFunc(r.steps(s.Name()), func(done step) bool { return done.name == s.Name() }) {
			return s.Name(), true
		}
	}
	return "", false
}

// lossBefore returns the time of the first outage of a measured lane before the scenario, in seconds. Such a fault may look like the bug.
func (r *Record) lossBefore() (at float64, lossy bool) {
	scenario := slices.IndexFunc(r.Events, func(e record.Event) bool { return e.Kind() == record.KindPhase && e.Object == "scenario" })
	if scenario < 0 {
		return 0, false
	}
	for _, l := range r.Report.Lanes {
		for _, o := range l.Outages {
			if o.From < r.Events[scenario].At.Seconds() {
				return o.From, true
			}
		}
	}
	return 0, false
}

// outagesOn returns the outages of the measured lanes on paths over a node.
func (r *Record) outagesOn(node string) (found []analysis.OutageReport) {
	for _, l := range r.Report.Lanes {
		for _, o := range l.Outages {
			if o.Node == node {
				found = append(found, o)
			}
		}
	}
	return found
}

// withoutNamespace returns the name of a Service without its namespace.
func withoutNamespace(service string) string { return service[strings.LastIndex(service, "/")+1:] }

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func fromSeconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
