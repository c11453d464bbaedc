package probes

import (
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/reports"
)

// maxEngineGrowth is the maximum heap growth of an engine from ten minutes to an hour at 200 attempts a second. By then
// it has memory for every five-tuple age.
const maxEngineGrowth = 4 << 20

// An engine keeps nothing of finished attempts but the ages of their five-tuples.
func TestEngineMemoryIsBounded(t *testing.T) {
	const rate = 200
	var early, late int64
	n := 0
	trial := &trial{host: &fakeHost{}}
	trial.Engine = newEngine(Config{Seed: 1, Flush: func() {}, Record: func(a record.Attempt) {
		n++
		switch a.Seq {
		case 10 * 60 * rate:
			early = heapBytes()
		case 60*60*rate - 1:
			late = heapBytes()
		}
	}}, trial.host)
	trial.protocol = &fakeProtocol{engine: trial.Engine, duration: after(3 * time.Millisecond), class: alwaysOK}
	trial.protocols = map[string]protocol{ProtocolTCPNew: trial.protocol}
	trial.run(t, testLane(rate), 0, time.Hour)
	if n != 60*60*rate {
		t.Fatalf("%d attempts in an hour at %d a second", n, rate)
	}
	if late-early > maxEngineGrowth {
		t.Errorf("the engine holds %d bytes more after an hour than after ten minutes; %d are allowed", late-early, int64(maxEngineGrowth))
	}
	t.Logf("after ten minutes %d bytes, after an hour %d more", early, late-early)
}

// heapBytes returns the size of the live heap.
func heapBytes() int64 {
	runtime.GC()
	runtime.GC() // frees objects with finalizers
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Limits of an hour at 200 attempts a second: the heap growth of engine, worker and record after the first ten minutes,
// and the size of the folder with all reports.
const (
	maxHeapGrowth = 8 << 20
	maxDiskBytes  = 16 << 20
)

// An hour of virtual time at 200 attempts a second, from the schedule to the reports, with three outages and the proof:
// memory and disk are bounded, every attempt is counted, and the verdict is right.
func TestHourAt200PerSecondIsBounded(t *testing.T) {
	const rate, hour = 200, time.Hour
	dir := t.TempDir()
	recorder, err := record.NewHistoryWriter(filepath.Join(dir, "history"), record.Run{SchemaVersion: record.HistoryVersion, Scenario: "soak", Record: record.RecordThinned})
	if err != nil {
		t.Fatal(err)
	}
	pipe, out := io.Pipe()
	copied := make(chan error, 1)
	var sent, written atomic.Int64
	go func() { copied <- copyAttempts(pipe, recorder, &written) }()
	sink := newSink(out, func(err error) { t.Error(err) })
	// Fake time does not wait for the writer: without this wait, the spool would be measured.
	settle := func() {
		sink.flush()
		for deadline := time.Now().Add(time.Minute); written.Load() < sent.Load() && time.Now().Before(deadline); {
			time.Sleep(100 * time.Microsecond)
		}
	}
	var early, late int64
	trial := &trial{host: &fakeHost{}}
	trial.Engine = newEngine(Config{Seed: 1, Flush: sink.flush, Record: func(a record.Attempt) {
		a.Backend, a.Node = "web-1", "node-1"
		sent.Add(1)
		sink.record(a)
		switch {
		case a.Lane == 1 && a.Seq == 10*60*rate:
			settle()
			early = heapBytes()
		case a.Lane == 1 && a.Seq == 60*60*rate-1:
			settle()
			late = heapBytes()
		case a.Seq%(10*rate) == 0:
			settle()
		}
	}}, trial.host)
	webClass := func(seq uint64) record.Class { // half a second at minutes 10, 30 and 50
		if second := seq / rate; (second == 600 || second == 1800 || second == 3000) && seq%rate < rate/2 {
			return record.ReplyTimeout
		}
		return record.OK
	}
	canaryClass := func(seq uint64) record.Class { // from 2.0 s to 2.2 s
		if seq >= 2*rate && seq < 2*rate+rate/5 {
			return record.ReplyTimeout
		}
		return record.OK
	}
	trial.protocols = map[string]protocol{
		ProtocolTCPNew:   &fakeProtocol{engine: trial.Engine, duration: after(3 * time.Millisecond), class: webClass},
		ProtocolUDPFresh: &fakeProtocol{engine: trial.Engine, duration: after(3 * time.Millisecond), class: canaryClass}}
	web, canary := testLane(rate), testLane(rate)
	canary.ID, canary.Name, canary.Protocol, canary.Control = 2, "canary", ProtocolUDPFresh, true
	for _, l := range []Lane{web, canary} {
		recorder.Event(l.Event(0))
	}
	event := func(at time.Duration, object string, body record.Body) {
		recorder.Event(record.Event{At: at, Object: object, Text: object, Body: body})
	}
	event(0, "baseline", record.Phase{})
	for _, e := range ReplyDropEvents("canary", "proof-1", 2*time.Second, 2200*time.Millisecond) {
		recorder.Event(e)
	}
	event(5*time.Second, "scenario", record.Phase{})
	event(5*time.Second, "soak", record.Step{State: record.StepBegin})
	if err := errors.Join(trial.Start(canary, 0), trial.Stop(canary.ID, 5*time.Second)); err != nil {
		t.Fatal(err)
	}
	trial.run(t, web, 0, hour)
	event(hour, "soak", record.Step{State: record.StepEnd})
	event(hour, "end", record.Phase{})
	if err := errors.Join(sink.close(), out.Close(), <-copied, recorder.Close()); err != nil {
		t.Fatal(err)
	}
	h, err := record.OpenUnsealed(dir)
	if err != nil {
		t.Fatal(err)
	}
	r, err := reports.WriteAll(dir, h)
	if err != nil {
		t.Fatal(err)
	}
	if r.Verdict != analysis.Fail || r.Totals.Attempts != 3600*rate || r.Totals.Dropped != 3*rate/2 || len(r.Lanes[0].Outages) != 3 || r.DetectionFloor.Ms == nil {
		t.Errorf("%s %q: %d attempts, %d dropped in %d outages; want %d, %d and 3", r.Verdict, r.Reasons, r.Totals.Attempts, r.Totals.Dropped,
			len(r.Lanes[0].Outages), 3600*rate, 3*rate/2)
	}
	if late-early > maxHeapGrowth {
		t.Errorf("the heap has %d bytes more after an hour than after ten minutes; %d are allowed", late-early, int64(maxHeapGrowth))
	}
	var disk int64
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if info, statErr := d.Info(); err == nil && statErr == nil && !d.IsDir() {
			disk += info.Size()
		}
		return err
	})
	if err != nil || disk > maxDiskBytes {
		t.Errorf("the folder has %d bytes, %d are allowed (%v)", disk, int64(maxDiskBytes), err)
	}
	t.Logf("%d bytes on disk, heap growth %d", disk, late-early)
}

// copyAttempts records the output of a worker.
func copyAttempts(from io.Reader, recorder *record.HistoryWriter, written *atomic.Int64) error {
	r := record.NewAttemptReader(from)
	for {
		a, err := r.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		recorder.Attempt(a)
		written.Add(1)
	}
}
