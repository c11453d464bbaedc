package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/hitless/hitless/cluster"
	"github.com/hitless/hitless/internal/units"
	"github.com/hitless/hitless/probes/fleet"
	"github.com/hitless/hitless/record"
)

// The costs of an attempt of a worker. The simulation of a thousand workers (internal/site) measures the first two and compares
// them with the page.
const (
	passedEach  = 44                // bytes through the API server
	historyEach = 40                // bytes of history
	timeWait    = 120 * time.Second // nf_conntrack_tcp_timeout_time_wait
)

// fleetTable computes what fleets of some sizes cost.
func fleetTable(string) (string, error) {
	fleets := []struct {
		workers int
		rate    float64
	}{{20, 10}, {100, 10}, {1000, 10}, {1000, 1}}
	pod := (&cluster.Fleet{}).Requests()
	rows := []struct {
		name string
		of   func(workers, rate float64) string
	}{
		{"attempts per second", func(w, r float64) string { return number(w * r) }},
		{"detection floor of a lane", func(_, r float64) string { return (time.Duration(2/r*1000) * time.Millisecond).String() }},
		{"each worker is polled every", func(w, _ float64) string { return fleet.PollInterval(int(w)).String() }},
		{"polls per second through the API server", func(w, _ float64) string { return number(w / fleet.PollInterval(int(w)).Seconds()) }},
		{"bytes through the API server for each attempt", func(float64, float64) string { return number(passedEach) }},
		{"bytes per second through the API server", func(w, r float64) string { return size(w * r * passedEach) }},
		{"attempts that a worker keeps between polls", func(w, r float64) string { return number(r * fleet.PollInterval(int(w)).Seconds()) }},
		{"memory of a worker for them", func(w, r float64) string {
			return size(r * fleet.PollInterval(int(w)).Seconds() * float64(unsafe.Sizeof(record.Attempt{})))
		}},
		{"bytes of history for each attempt", func(float64, float64) string { return number(historyEach) }},
		{"history of an hour", func(w, r float64) string { return size(w * r * 3600 * historyEach) }},
		{"history of a day", func(w, r float64) string { return size(w * r * 86400 * historyEach) }},
		{"requested CPU", func(w, _ float64) string { return number(w*float64(pod.Cpu().MilliValue())/1000) + " cores" }},
		{"requested memory", func(w, _ float64) string { return size(w * float64(pod.Memory().Value())) }},
		{"conntrack entries at the Service's pods", func(w, r float64) string { return number(w * r * timeWait.Seconds()) }},
	}
	var b strings.Builder
	b.WriteString("| |")
	for _, f := range fleets {
		fmt.Fprintf(&b, " %s workers, %v/s |", number(float64(f.workers)), f.rate)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(fleets)) + "\n")
	for _, row := range rows {
		fmt.Fprintf(&b, "| %s |", row.name)
		for _, f := range fleets {
			fmt.Fprintf(&b, " %s |", row.of(float64(f.workers), f.rate))
		}
		b.WriteString("\n")
	}
	return b.String(), nil
}

// number formats with commas between thousands, and one decimal for fractions.
func number(n float64) string {
	if n != math.Trunc(n) {
		return strconv.FormatFloat(n, 'f', 1, 64)
	}
	return units.Thousands(int(n))
}

// size formats bytes with a decimal unit.
func size(bytes float64) string {
	for _, unit := range []string{"B", "kB", "MB"} {
		if bytes < 1000 {
			return fmt.Sprintf("%.3g %s", bytes, unit)
		}
		bytes /= 1000
	}
	return fmt.Sprintf("%.3g GB", bytes)
}
