//go:build unix

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/hitless/hitless/internal/testfiles"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/reports"
)

// Runs that cannot be verified never agree.
func TestRunsThatCannotBeVerified(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(t *testing.T, dir string)
		code  int
	}{
		"no capture": {func(*testing.T, string) {}, 2},
		"a capture that is none": {func(t *testing.T, dir string) {
			testfiles.Write(t, dir, record.CaptureFile, []byte("no packets"))
		}, 2},
		"a loop that is none": {func(t *testing.T, dir string) {
			testfiles.Write(t, dir, record.LoopFile, []byte("no requests"))
		}, 2},
		"a report with another verdict than the seal": {func(t *testing.T, dir string) {
			testfiles.Write(t, dir, record.LoopFile, []byte(`{"atNs":20000000000,"tookNs":12000000,"port":`+strconv.Itoa(record.FirstLoopPort)+`}`+"\n"))
			executed("report", dir)
			data, err := os.ReadFile(filepath.Join(dir, reports.ReportFile))
			if err != nil {
				t.Fatal(err)
			}
			changed := regexp.MustCompile(`"dropped": [0-9]+`).ReplaceAll(data, []byte(`"dropped": 7777`))
			testfiles.Write(t, dir, reports.ReportFile, changed)
		}, 3},
		"a changed record": {func(t *testing.T, dir string) {
			file := filepath.Join(dir, record.HistoryDir, record.AttemptsFile)
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			data[len(data)-1]++
			testfiles.Write(t, filepath.Dir(file), record.AttemptsFile, data)
		}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			writeRun(t, dir)
			c.spoil(t, dir)
			if code, out, errs := executed("verify", dir); code != c.code || out != "" || errs == "" {
				t.Errorf("exit code %d, want %d; stdout %q, stderr %q", code, c.code, out, errs)
			}
		})
	}
}

// A capture needs a lab, and a client outside of the cluster.
func TestRunsThatCannotBeCaptured(t *testing.T) {
	for _, args := range [][]string{
		{"run", "rollout", "--capture", "--set", "client=pod"},
		{"run", "rollout", "--capture", "--in-cluster"},
		{"run", "rollout", "--loop", "--set", "client=pod"},
		{"run", "rollout", "--loop", "--in-cluster"},
	} {
		if code, _, errs := executed(append(args, "--out", t.TempDir())...); code != exitUsage || errs == "" {
			t.Errorf("hitless %q: exit code %d, want %d; stderr %q", args, code, exitUsage, errs)
		}
	}
}
