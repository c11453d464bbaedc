package run

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/internal/guest"
	"github.com/hitless/hitless/lab/subject"
	"github.com/hitless/hitless/lab/vm"
	"github.com/hitless/hitless/reports"
)

// What a guest has recorded until a checkpoint can be judged from the run's folder, and a later checkpoint replaces it.
func TestACheckpointIsKept(t *testing.T) {
	o := Options{Out: t.TempDir(), Scenario: "soak", Subject: "bundled"}
	region := make([]byte, 8<<20)
	frames := vm.NewFrameWriter(region)
	record := func(object string, at time.Duration) {
		line, err := json.Marshal(reports.Event{At: at, Kind: reports.EventPhase, Object: object, Text: "phase " + object})
		if err == nil {
			err = frames.Write(vm.FrameEvent, append(line, '\n'))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var empty bytes.Buffer
	attempts := reports.NewAttemptWriter(&empty)
	if err := attempts.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := frames.Write(vm.FrameAttempts, empty.Bytes()); err != nil {
		t.Fatal(err)
	}
	for i, phase := range []string{"setup", "baseline"} {
		record(phase, time.Duration(i)*time.Second)
		if err := o.keep(guest.Plan{Scenario: "soak", Nodes: 3}, subject.Spec{Name: "bundled", Mode: "ipvs"}, &prepared{}, region); err != nil {
			t.Fatal(err)
		}
		h, err := reports.OpenHistory(filepath.Join(o.Out, "history"))
		if err != nil {
			t.Fatal(err)
		}
		report, err := reports.WriteAll(o.Out, h)
		if err != nil {
			t.Fatal(err)
		}
		if report.Verdict != reports.Invalid || !strings.Contains(strings.Join(report.Reasons, "\n"), `no phase "end"`) {
			t.Errorf("a history without end is %s: %q", report.Verdict, report.Reasons)
		}
		data, err := os.ReadFile(filepath.Join(o.Out, "history", reports.EventsFile))
		if err != nil || bytes.Count(data, []byte{'\n'}) != i+1 {
			t.Errorf("after checkpoint %d the record is %q, %v", i+1, data, err)
		}
	}
	left, err := filepath.Glob(filepath.Join(o.Out, ".checkpoint*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestTheGuestsLineOfACheckpoint(t *testing.T) {
	for line, want := range map[string]bool{
		"hitless: +3630.2s checkpoint 1h0m0s of 24h0m0s: 13 of 13 planned disturbances had their effect, 0 attempts failed": true,
		"hitless: +3630.2s phase settle": false,
		"checkpoint of somebody else":    false,
	} {
		if checkpointLine.MatchString(line) != want {
			t.Errorf("%q is taken for a checkpoint: %v", line, !want)
		}
	}
}
