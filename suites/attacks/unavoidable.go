package attacks

import (
	"fmt"
	"time"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/record"
)

// disruption is a scenario with unavoidable loss. The bundled proxier loses exactly that, and passes. A twin loses slightly more, later or
// elsewhere, and fails.
type disruption struct {
	name, scenario string
	set            map[string]string
	twin           string   // what the twin does
	faults         []string // of the twin
	loses          attack   // what its run must show besides: lane, classes, node and reason
	smoke          bool     // seed 1 of the bundled proxier, and the twin in CI
}

// The losses of twins. A rule loses for less than a second, a scenario for longer, or with other classes.
const (
	brief = 2 * time.Second
	long  = time.Hour
)

var (
	delayed  = []record.Class{record.Delayed}
	rejected = []record.Class{record.Rejected}
	reset    = []record.Class{record.Reset}
	silent   = []record.Class{record.ConnectTimeout, record.Delayed, record.Unreachable} // a proxy that follows would reject
)

// The scenario of a run begins between 26 s and 37 s after the start of its proxies. Each fault is in its part of the run with all of
// these times.
var disruptions = []disruption{
	{name: "loses a node", scenario: "drain", set: map[string]string{"what": "poweroff", "off": "60s"},
		twin: "drops on another node meanwhile", faults: []string{"node-3:rule:50s:300ms:in " + newTCP + "drop"},
		loses: attack{lane: tcpNew, classes: delayed, node: "node-3", among: brief}},
	{name: "loses a node behind policy Local", scenario: "drain", set: map[string]string{"what": "poweroff", "off": "40s", "trafficPolicy": "Local"},
		twin: "rejects on another node meanwhile", faults: []string{"node-2:rule:50s:100ms:in " + newTCP + "reject"},
		loses: attack{lane: tcpNew, classes: rejected, node: "node-2", among: brief}},
	{name: "loses a node that boots again", scenario: "drain", set: map[string]string{"what": "reboot", "off": "40s", "settle": "30s"},
		twin: "rejects on another node after the boot", faults: []string{"node-2:rule:90s:100ms:in " + newTCP + "reject"},
		loses: attack{lane: tcpNew, classes: rejected, node: "node-2", among: brief}},
	{name: "loses a node that was marked", scenario: "drain", set: map[string]string{"what": "scaledown", "off": "25s", "lanes": tcpNew + "," + tcpLong},
		twin: "resets open connections over another node", faults: []string{"node-1:rule:50s:100ms:tracked " + webTCP + "ct state established reject with tcp reset"},
		loses: attack{lane: tcpLong, classes: reset, node: "node-1", among: brief}},
	{name: "has no pods", scenario: "scale", set: map[string]string{"away": "10s", "settle": "30s"}, smoke: true,
		twin: "does not follow for a time", faults: []string{"*:dead:20s:60s"},
		loses: attack{lane: tcpNew, classes: silent, among: long}},
	{name: "has no pods behind policy Local", scenario: "scale", set: map[string]string{"away": "10s", "settle": "30s", "trafficPolicy": "Local"},
		twin: "rejects once pods are ready", faults: []string{"*:rule:68s:100ms:in " + newTCP + "reject"},
		loses: attack{lane: tcpNew, classes: rejected, among: brief}},
	{name: "has no Service", scenario: "recreate", set: map[string]string{"away": "10s", "settle": "30s"},
		twin: "rejects once it is there again", faults: []string{"*:rule:60s:100ms:in " + newTCP + "reject"},
		loses: attack{lane: tcpNew, classes: rejected, among: brief}},
	{name: "meets a foreign drop rule", scenario: "interference", set: map[string]string{"what": "stale-drop", "lasts": "30s", "trafficPolicy": "Local"},
		twin: "drops on another node meanwhile", faults: []string{"node-3:rule:45s:800ms:in " + newTCP + "drop"},
		loses: attack{lane: tcpNew, classes: delayed, node: "node-3", among: brief}},
	{name: "meets a foreign drop rule with policy Cluster", scenario: "interference", set: map[string]string{"what": "stale-drop", "lasts": "30s", "trafficPolicy": "Cluster"},
		twin: "rejects on another node meanwhile", faults: []string{"node-3:rule:45s:100ms:in " + newTCP + "reject"},
		loses: attack{lane: tcpNew, classes: rejected, node: "node-3", among: brief}},
	{name: "loses its rules", scenario: "interference", set: map[string]string{"what": "flush", "lasts": "30s"},
		twin: "does not write them again", faults: []string{"*:dead:20s:1h"},
		loses: attack{lane: tcpNew, classes: silent, node: "node-1", among: long, reason: "node-1" + notFollowed}},
}

// unavoidable are the cases of all disruptions: seeds 1 to 4 of the bundled proxier, and seed 1 of the twin.
func unavoidable() (all []attack) {
	for _, d := range disruptions {
		for seed := int64(1); seed <= 4; seed++ {
			all = append(all, attack{name: fmt.Sprintf("is bundled and %s, seed %d", d.name, seed), bundled: true, seed: seed, scenario: d.scenario, set: d.set,
				want: analysis.Pass, excused: true, smoke: d.smoke && seed == 1})
		}
		twin := d.loses
		twin.name, twin.faults, twin.scenario, twin.set = d.name+", and "+d.twin, d.faults, d.scenario, d.set
		twin.want, twin.excused, twin.ci = analysis.Fail, true, d.smoke
		all = append(all, twin)
	}
	return all
}
