package site

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/guest"
	"github.com/hitless/hitless/lab/subject"
	"github.com/hitless/hitless/lab/vm"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/reports"
)

// soaking is a guest that records events without attempts.
type soaking struct {
	*lab
	t      *testing.T
	region []byte
	frames *vm.FrameWriter
}

func newSoaking(t *testing.T) soaking {
	t.Helper()
	region := make([]byte, 8<<20)
	l := &lab{Call: Call{Out: t.TempDir(), Scenario: "soak"}, LabOptions: LabOptions{Subject: "bundled"}, plan: guest.Plan{Scenario: "soak", Nodes: 3}, spec: subject.Spec{Name: "bundled", Mode: "ipvs"}}
	if err := errors.Join(l.claim("hitless soak"), l.clear()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.release)
	s := soaking{l, t, region, vm.NewFrameWriter(region)}
	var empty bytes.Buffer
	attempts := record.NewAttemptWriter(&empty)
	if err := attempts.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := s.frames.Write(vm.FrameAttempts, empty.Bytes()); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s soaking) record(phase string, at time.Duration) {
	s.t.Helper()
	line, err := json.Marshal(record.Event{At: at, Object: phase, Text: "phase " + phase, Body: record.Phase{}})
	if err == nil {
		err = s.frames.Write(vm.FrameEvent, append(line, '\n'))
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s soaking) keep() error { return s.storeCheckpoint(s.region) }

// The record of a checkpoint in the run's folder can be judged, and a later checkpoint replaces it.
func TestCheckpointIsStored(t *testing.T) {
	s := newSoaking(t)
	for i, phase := range []string{"setup", "baseline"} {
		s.record(phase, time.Duration(i)*time.Second)
		if err := s.keep(); err != nil {
			t.Fatal(err)
		}
		h, err := record.OpenHistory(s.dir())
		if err != nil {
			t.Fatal(err)
		}
		report, err := reports.WriteAll(s.dir(), h)
		if err != nil {
			t.Fatal(err)
		}
		if report.Verdict != analysis.Invalid || !strings.Contains(strings.Join(report.Reasons, "\n"), `no phase "end"`) {
			t.Errorf("a history without end is %s: %q", report.Verdict, report.Reasons)
		}
		data, err := os.ReadFile(filepath.Join(s.dir(), "history", record.EventsFile))
		if err != nil || bytes.Count(data, []byte{'\n'}) != i+1 {
			t.Errorf("after checkpoint %d the record is %q, %v", i+1, data, err)
		}
	}
	left, err := filepath.Glob(filepath.Join(s.dir(), ".checkpoint*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// At each instant the folder has a complete checkpoint, also while the next one is written.
func TestCheckpointStaysUntilNextIsComplete(t *testing.T) {
	s := newSoaking(t)
	s.record("setup", 0)
	if err := s.keep(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		var err error
		for i := 0; i < 200 && err == nil; i++ {
			err = s.keep()
		}
		done <- err
	}()
	for looks := 0; ; looks++ {
		select {
		case err := <-done:
			if err != nil || looks == 0 {
				t.Errorf("%d looks, %v", looks, err)
			}
			return
		default:
		}
		run, err := reports.OpenRun(s.dir(), nil)
		if err == nil && len(run.Report.Events) == 1 {
			continue
		}
		t.Errorf("look %d: %+v, %v", looks, run, err)
		<-done
		return
	}
}
