package scenarios

import (
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/hitless/hitless/record"
)

// Length is the least time for which the lanes are measured, where the parameters determine it; 0 elsewhere.
func (p Params) Length() time.Duration {
	length := ChurnFor.Of(p) + quietFor.Of(p) // no scenario has both
	if length > 0 {
		length += baseline.Of(p) + settle.Of(p)
	}
	return length
}

// Room bounds the bytes of the lanes in the record, each with the given attempts a second, where the parameters
// determine the length of the run; 0 elsewhere. A soak that ends at its first failure has a thinned record; with
// keepGoing any number of failures needs the room of a complete record.
func (p Params) Room(rate float64) float64 {
	length, bytes := p.Length().Seconds(), 0.0
	thinned := RecordMode.Of(p) == record.RecordThinned && !keepGoing.Of(p)
	var names []string
	for range p.Family().Each() {
		names = append(names, p.laneNames()...)
	}
	if unserved.Of(p) > 0 {
		names = append(names, record.ProtocolNew)
	}
	if direct.Of(p) {
		for range Replicas.Of(p) + 1 { // one comes before another goes
			names = append(names, record.ProtocolNew)
		}
	}
	for _, name := range names {
		if thinned && (name == record.ProtocolNew || name == record.ProtocolFresh) {
			bytes += record.ThinnedLaneBytes(rate, length, p.eventful().Seconds())
		} else {
			bytes += record.LaneBytes(rate, length)
		}
	}
	return bytes
}

// timeNearDisturbance is the time near the events of one disturbance, for each pod and the proxy: three times the
// largest measured value.
const timeNearDisturbance = 30 * time.Second

// eventful bounds the time of a soak that is near an event.
func (p Params) eventful() time.Duration {
	disturbances := 0
	for _, kind := range churnKinds {
		disturbances += p.planned(kind, ChurnFor.Of(p))
	}
	outside := p.Length() - ChurnFor.Of(p)
	return min(p.Length(), outside+time.Duration(disturbances*(Replicas.Of(p)+1))*timeNearDisturbance)
}

// Datagrams reports whether a lane uses UDP.
func (p Params) Datagrams() bool {
	return slices.ContainsFunc(p.laneNames(), record.Datagrams)
}

// maxLongConnections is the number of connections of a tcp-long lane whose rate opens them within two seconds.
const maxLongConnections = 12

// parameterLanes are the lanes that the run's parameters name.
func (w *World) parameterLanes() []LaneSpec {
	var specs []LaneSpec
	for _, f := range w.families() {
		for _, name := range w.Params.laneNames() {
			specs = append(specs, w.protocolLane(f, name, w.Rate))
		}
	}
	return specs
}

// unservedLanes are the lanes to a port that no Service has, one of each family.
func (w *World) unservedLanes() (specs []LaneSpec) {
	port := unserved.Of(w.Params)
	if port == 0 {
		return nil
	}
	for _, f := range w.families() {
		spec := w.mainLane(f, record.ProtocolDial)
		address, _, _ := net.SplitHostPort(spec.Target) // it has been parsed
		spec.Name, spec.Target = f.Named(record.RoleUnserved), net.JoinHostPort(address, strconv.Itoa(port))
		spec.Control, spec.Role, spec.Backends, spec.Host = true, record.RoleUnserved, nil, ""
		specs = append(specs, spec)
	}
	return specs
}

// families are the single families of the run, the primary one first.
func (w *World) families() []record.Family { return w.Params.Family().Each() }

// LaneNames are the measured lanes of a run with these parameters. It is false where the scenario has more lanes of its own.
func (s Scenario) LaneNames(p Params) (names []string, all bool) {
	for _, f := range p.Family().Each() {
		for _, name := range p.laneNames() {
			names = append(names, f.Named(name))
		}
	}
	return names, s.Lanes == nil
}

// protocolLane is the lane to the measured Service with this protocol as its name; that of IPv6 has a suffix.
func (w *World) protocolLane(f record.Family, protocol string, rate float64) LaneSpec {
	spec := w.mainLane(f, protocol)
	spec.Rate = rate
	if protocol == record.ProtocolNew || protocol == record.ProtocolFresh {
		spec.Policy = w.policyWord()
	}
	if protocol == record.ProtocolLong {
		spec.Connections = longConnections(rate)
	}
	return spec
}

// longConnections is the number of connections that a tcp-long lane keeps open.
func longConnections(rate float64) int { return min(maxLongConnections, max(1, int(2*rate))) }

// speaksUDP reports whether a measured lane uses UDP.
func (w *World) speaksUDP() bool { return w.run.datagrams || w.Params.Datagrams() }
