package scenarios

import (
	"slices"
	"time"

	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios/timeline"
)

// Length is how long the lanes of a run are measured at least, where its parameters say that; 0 elsewhere.
func (p Params) Length() time.Duration {
	length := ChurnFor.Of(p) + quietFor.Of(p) // no scenario has both
	if length > 0 {
		length += baseline.Of(p) + settle.Of(p)
	}
	return length
}

// Room bounds the bytes that the record of a run takes for its lanes, each at a rate a second, where the parameters say how
// long it lasts; 0 elsewhere. A thinned record of a soak that ends at its first failure has only what is near an event one by
// one; a soak that goes on may have any number of failures, and then as much as a record of everything.
func (p Params) Room(rate float64) float64 {
	length, bytes := p.Length().Seconds(), 0.0
	thinned := RecordMode.Of(p) == record.RecordThinned && !keepGoing.Of(p)
	names := p.laneNames()
	if direct.Of(p) {
		for range Replicas.Of(p) + 1 { // one comes before another goes
			names = append(names, timeline.TCPNew)
		}
	}
	for _, name := range names {
		if thinned && (name == timeline.TCPNew || name == timeline.UDPFresh) {
			bytes += record.ThinnedLaneBytes(rate, length, p.eventful().Seconds())
		} else {
			bytes += record.LaneBytes(rate, length)
		}
	}
	return bytes
}

// timeNearDisturbance is how much of a soak is near the events of one disturbance, for each pod and the proxy: three times of what was seen.
const timeNearDisturbance = 30 * time.Second

// eventful bounds how much of a soak is near an event.
func (p Params) eventful() time.Duration {
	disturbances := 0
	for _, kind := range churnKinds {
		disturbances += p.planned(kind, ChurnFor.Of(p))
	}
	outside := p.Length() - ChurnFor.Of(p)
	return min(p.Length(), outside+time.Duration(disturbances*(Replicas.Of(p)+1))*timeNearDisturbance)
}

// Datagrams reports whether a lane speaks UDP.
func (p Params) Datagrams() bool {
	return slices.ContainsFunc(p.laneNames(), timeline.IsUDP)
}

// maxLongConnections is how many connections a tcp-long lane keeps open, if its rate opens them within two seconds.
const maxLongConnections = 12

// parameterLanes are the lanes that the run's parameters name.
func (w *World) parameterLanes() []LaneSpec {
	var specs []LaneSpec
	for _, name := range w.Params.laneNames() {
		specs = append(specs, w.protocolLane(name, w.Rate))
	}
	return specs
}

// protocolLane is a lane to the measured Service that is named by its protocol.
func (w *World) protocolLane(protocol string, rate float64) LaneSpec {
	spec := w.mainLane(protocol)
	spec.Protocol, spec.Target, spec.Rate = protocol, w.run.main.targetFor(protocol), rate
	if protocol == timeline.TCPNew || protocol == timeline.UDPFresh {
		spec.Policy = w.policyWord()
	}
	if protocol == timeline.TCPLong {
		spec.Connections = min(maxLongConnections, max(1, int(2*rate)))
	}
	return spec
}

// speaksUDP reports whether a measured lane speaks UDP: one that the parameters name, or one of the scenario's own.
func (w *World) speaksUDP() bool { return w.run.datagrams || w.Params.Datagrams() }
