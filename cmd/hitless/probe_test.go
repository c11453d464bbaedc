//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/probes"
	"github.com/hitless/hitless/probes/session"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/reports"
)

// watched is output that reports when a text was written.
type watched struct {
	mu    sync.Mutex
	text  bytes.Buffer
	await string
	found func()
}

func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, err := w.text.Write(p)
	if w.found != nil && strings.Contains(w.text.String(), w.await) {
		w.found()
		w.found = nil
	}
	return n, err
}

// Ctrl-C ends a measurement with a report and the exit code of the verdict.
func TestInterruptEndsAProbeInOrder(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("web-1")) }))
	defer server.Close()
	out := t.TempDir()
	var stdout bytes.Buffer
	stderr := &watched{await: "make your change now", found: func() {
		time.AfterFunc(300*time.Millisecond, func() { // some time in which the target is measured
			if err := syscall.Kill(syscall.Getpid(), syscall.SIGINT); err != nil {
				t.Error(err)
			}
		})
	}}
	code := execute([]string{"probe", server.Listener.Addr().String(), "--rate", "20", "--out", out}, &stdout, stderr)
	r, err := analysis.Read(filepath.Join(out, reports.ReportFile))
	if err != nil {
		t.Fatalf("no report: %v\n%s", err, stderr.text.String())
	}
	if code != r.Verdict.ExitCode() || r.Totals.Attempts == 0 {
		t.Errorf("exit %d with verdict %s and %+v:\n%s", code, r.Verdict, r.Totals, stdout.String())
	}
	h, err := record.OpenHistory(out)
	if err != nil {
		t.Fatal(err)
	}
	for a, err := range h.Attempts() {
		if err != nil {
			t.Fatal(err)
		}
		if a.Class == record.Probe && a.Detail != probes.DetailLate { // a busy machine is late, with or without an interrupt
			t.Errorf("the interrupt failed attempt %d of lane %d: %s", a.Seq, a.Lane, a.Detail)
		}
	}
	if !strings.Contains(stdout.String(), "hitless probe "+server.Listener.Addr().String()+" --rate 20") {
		t.Errorf("the output lacks the call:\n%s", stdout.String())
	}
}

// The recorded command is the call as a shell reads it again, and host.json has its words.
func TestTheCommandOfAProbeCanBeRepeated(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"[2001:db8::10]:80", "-v", "--path", "/a b?c=it's", "--rate", "20", "--out", "o p"}, `hitless probe '[2001:db8::10]:80' --path '/a b?c=it'\''s' --rate 20`},
		{[]string{"h:80", "--yes", "--no=false"}, "hitless probe h:80 --no=false --yes"},
	} {
		cmd, o := probeCommand(), session.Options{}
		cmd.Flags().Bool("yes", false, "")
		cmd.Flags().Bool("no", true, "")
		if err := cmd.ParseFlags(c.args); err != nil {
			t.Fatal(err)
		}
		if err := fillSession(&o, cmd, "probe", cmd.Flags().Arg(0), "", ""); err != nil || o.Command != c.want {
			t.Errorf("%q is recorded as %s (%v), want %s", c.args, o.Command, err, c.want)
		}
		words, err := record.SplitWords(o.Command)
		if err != nil || !slices.Equal(words, o.Words) {
			t.Errorf("a shell reads %q (%v) of %s, whose words are %q", words, err, o.Command, o.Words)
		}
		dir := t.TempDir()
		if err := o.WriteHost(dir, time.Now()); err != nil {
			t.Fatal(err)
		}
		var host struct{ Command []string }
		data, err := os.ReadFile(filepath.Join(dir, reports.HostFile))
		if err := errors.Join(err, json.Unmarshal(data, &host)); err != nil || !slices.Equal(host.Command, words) {
			t.Errorf("host.json has %q (%v), want %q", host.Command, err, words)
		}
	}
	// A watch of a cluster has no target.
	cmd, o := watchStart(), session.Options{}
	if err := errors.Join(cmd.ParseFlags([]string{"--kubeconfig", "k", "--selector", "tier in (a,b)"}), fillSession(&o, cmd, "watch start", "", "", "")); err != nil ||
		o.Command != "hitless watch start --kubeconfig k --selector 'tier in (a,b)'" {
		t.Errorf("%s (%v)", o.Command, err)
	}
}

// Where lines are kept, only seconds with failures are worth one.
func TestSecondsAreQuietOffATerminal(t *testing.T) {
	var out bytes.Buffer
	each := secondsTo(&out)
	each(session.Second{At: time.Second, Classes: map[record.Class]int{record.OK: 10}})
	each(session.Second{At: 2 * time.Second, Classes: map[record.Class]int{record.OK: 9, record.Refused: 1}})
	if got := out.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "1 refused") {
		t.Errorf("%q", got)
	}
}
