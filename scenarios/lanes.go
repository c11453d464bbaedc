package scenarios

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hitless/hitless/reports"
)

// The words for a lane's protocol, as the probes have them.
const (
	tcpNew    = "tcp-new"
	tcpLong   = "tcp-long"
	httpReuse = "http-reuse"
	udpFresh  = "udp-fresh"
	udpSticky = "udp-sticky"
)

// Protocols are the words that a lane can be named by, in the order in which lanes are started: connections that stay
// open come first, see World.startLanes.
func Protocols() []string { return []string{tcpLong, httpReuse, udpSticky, udpFresh, tcpNew} }

// lanesParameter names the lanes that measure the Service; each is counted by itself.
var lanesParameter = Parameter{"lanes", tcpNew,
	"what measures, each at the run's rate: some of " + strings.Join(Protocols(), ", "), laneList, nil,
	[]Parameter{closeParameter, directParameter, reuseParameter, targetParameter, clientParameter}}

// lanesOfLeavingNodes is lanesParameter where nodes come and go, so that neither a client nor a target can be on one.
var lanesOfLeavingNodes = Parameter{lanesParameter.Key, lanesParameter.Default, lanesParameter.Help, laneList, nil,
	[]Parameter{closeParameter, directParameter, reuseParameter}}

// laneList checks the value of lanesParameter.
func laneList(value string) error {
	var seen []string
	for name := range strings.SplitSeq(value, ",") {
		if !slices.Contains(Protocols(), name) || slices.Contains(seen, name) {
			return fmt.Errorf("give some of %s, each once, with commas between them", strings.Join(Protocols(), ", "))
		}
		seen = append(seen, name)
	}
	return nil
}

// lanes are the protocols that the run measures with, in their fixed order. A scenario without the parameter measures new
// connections only.
func (p Params) lanes() []string {
	named := strings.Split(p[lanesParameter.Key], ",")
	if p[lanesParameter.Key] == "" {
		named = []string{tcpNew}
	}
	return slices.DeleteFunc(Protocols(), func(name string) bool { return !slices.Contains(named, name) })
}

// Length is how long the lanes of a run are measured at least, where its parameters say that; 0 elsewhere.
func (p Params) Length() time.Duration {
	length := p.duration("for") + p.duration("quietFor") // no scenario has both, and a key that is not there is 0
	if length > 0 {
		length += p.duration("baseline") + p.duration("settle")
	}
	return length
}

// Room bounds the bytes that the record of a run takes for its lanes, each at a rate a second, where the parameters say how
// long it lasts; 0 elsewhere. A thinned record of a soak that ends at its first failure has only what is near an event one by
// one; a soak that goes on may have any number of failures, and then as much as a record of everything.
func (p Params) Room(rate float64) float64 {
	length, bytes := p.Length().Seconds(), 0.0
	thinned := p[RecordKey] == reports.RecordThinned && !p.on("keepGoing")
	names := p.lanes()
	if p.on(directParameter.Key) {
		for range p.number("replicas") + 1 { // one comes before another goes
			names = append(names, tcpNew)
		}
	}
	for _, name := range names {
		if thinned && (name == tcpNew || name == udpFresh) {
			bytes += reports.ThinnedLaneBytes(rate, length, p.eventful().Seconds())
		} else {
			bytes += reports.LaneBytes(rate, length)
		}
	}
	return bytes
}

// nearOne is how much of a soak is near the events of one disturbance, for each pod and the proxy: three times of what was seen.
const nearOne = 30 * time.Second

// eventful bounds how much of a soak is near an event.
func (p Params) eventful() time.Duration {
	disturbances := 0
	for _, kind := range churnKinds {
		disturbances += p.planned(kind, p.duration("for"))
	}
	outside := p.Length() - p.duration("for")
	return min(p.Length(), outside+time.Duration(disturbances*(p.number("replicas")+1))*nearOne)
}

// Datagrams reports whether a lane speaks UDP.
func (p Params) Datagrams() bool {
	return slices.ContainsFunc(p.lanes(), isUDP)
}

func isUDP(protocol string) bool { return strings.HasPrefix(protocol, "udp-") }

// mostLong is how many connections a tcp-long lane keeps open, if its rate opens them within two seconds.
const mostLong = 12

// namedLanes are the lanes that the run's parameters name.
func (w *World) namedLanes() []LaneSpec {
	var specs []LaneSpec
	for _, name := range w.Params.lanes() {
		specs = append(specs, w.protocolLane(name, w.Rate))
	}
	return specs
}

// protocolLane is a lane to the measured Service that is named by its protocol.
func (w *World) protocolLane(protocol string, rate float64) LaneSpec {
	spec := w.mainLane(protocol)
	spec.Protocol, spec.Target, spec.Rate = protocol, w.run.main.at(protocol), rate
	if protocol == tcpNew || protocol == udpFresh {
		spec.Policy = w.policyWord()
	}
	if protocol == tcpLong {
		spec.Connections = min(mostLong, max(1, int(2*rate)))
	}
	return spec
}

// speaksUDP reports whether a measured lane speaks UDP: one that the parameters name, or one of the scenario's own.
func (w *World) speaksUDP() bool { return w.run.datagrams || w.Params.Datagrams() }
