package attacks

import (
	"fmt"

	"github.com/hitless/hitless/analysis"
)

// disruption is a scenario with unavoidable loss. The bundled proxier loses exactly that, and passes. A twin loses slightly more, later or
// elsewhere, and fails.
type disruption struct {
	name, scenario string
	set            map[string]string
	twin           string   // what the twin does
	faults         []string // of the twin
	smoke          bool     // seed 1 of the bundled proxier
}

// The scenario of a run begins between 26 s and 37 s after the start of its proxies. Each fault is in its part of the run with all of
// these times.
var disruptions = []disruption{
	{name: "loses a node", scenario: "drain", set: map[string]string{"what": "poweroff", "off": "60s"},
		twin: "drops on another node meanwhile", faults: []string{"node-3:rule:50s:300ms:in " + newTCP + "drop"}},
	{name: "loses a node behind policy Local", scenario: "drain", set: map[string]string{"what": "poweroff", "off": "40s", "trafficPolicy": "Local"},
		twin: "rejects on another node meanwhile", faults: []string{"node-2:rule:50s:100ms:in " + newTCP + "reject"}},
	{name: "loses a node that boots again", scenario: "drain", set: map[string]string{"what": "reboot", "off": "40s", "settle": "30s"},
		twin: "rejects on another node after the boot", faults: []string{"node-2:rule:90s:100ms:in " + newTCP + "reject"}},
	{name: "loses a node that was marked", scenario: "drain", set: map[string]string{"what": "scaledown", "off": "25s", "lanes": tcpNew + "," + tcpLong},
		twin: "resets open connections over another node", faults: []string{"node-1:rule:50s:100ms:tracked " + webTCP + "ct state established reject with tcp reset"}},
	{name: "has no pods", scenario: "scale", set: map[string]string{"away": "10s", "settle": "30s"}, smoke: true,
		twin: "does not follow for a time", faults: []string{"*:dead:20s:60s"}},
	{name: "has no pods behind policy Local", scenario: "scale", set: map[string]string{"away": "10s", "settle": "30s", "trafficPolicy": "Local"},
		twin: "rejects once pods are ready", faults: []string{"*:rule:68s:100ms:in " + newTCP + "reject"}},
	{name: "has no Service", scenario: "recreate", set: map[string]string{"away": "10s", "settle": "30s"},
		twin: "rejects once it is there again", faults: []string{"*:rule:60s:100ms:in " + newTCP + "reject"}},
	{name: "meets a foreign drop rule", scenario: "interference", set: map[string]string{"what": "stale-drop", "lasts": "30s", "trafficPolicy": "Local"},
		twin: "drops on another node meanwhile", faults: []string{"node-3:rule:45s:800ms:in " + newTCP + "drop"}},
	{name: "meets a foreign drop rule with policy Cluster", scenario: "interference", set: map[string]string{"what": "stale-drop", "lasts": "30s", "trafficPolicy": "Cluster"},
		twin: "rejects on another node meanwhile", faults: []string{"node-3:rule:45s:100ms:in " + newTCP + "reject"}},
	{name: "loses its rules", scenario: "interference", set: map[string]string{"what": "flush", "lasts": "30s"},
		twin: "does not write them again", faults: []string{"*:dead:20s:1h"}},
}

// unavoidable are the cases of all disruptions: seeds 1 to 4 of the bundled proxier, and seed 1 of the twin.
func unavoidable() (all []attack) {
	for _, d := range disruptions {
		for seed := int64(1); seed <= 4; seed++ {
			all = append(all, attack{name: fmt.Sprintf("is bundled and %s, seed %d", d.name, seed), bundled: true, seed: seed, scenario: d.scenario, set: d.set,
				want: analysis.Pass, excused: true, smoke: d.smoke && seed == 1})
		}
		all = append(all, attack{name: d.name + ", and " + d.twin, faults: d.faults, scenario: d.scenario, set: d.set, want: analysis.Fail, excused: true})
	}
	return all
}
