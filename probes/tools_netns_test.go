//go:build netns && bench

package probes

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/record"
)

// Each run takes benchTime at one of the rates, and each tool has three runs.
const (
	benchTime  = 4 * time.Second
	blackRate  = 1000
	slow       = 500 * time.Millisecond // a later answer counts as failed with each tool
	blackAfter = 1500 * time.Millisecond
)

var benchRates = []float64{1000, 5000}

// benchRow is a row of out/bench/probes.json.
type benchRow struct {
	Tool       string    `json:"tool"`
	Rate       float64   `json:"rate"` // asked for, new connections per second
	Achieved   float64   `json:"achievedRate"`
	CPU        float64   `json:"cpuMicrosPerConnection"` // of the client's process, user and system
	Late       *float64  `json:"latenessP99Ms"`          // of the starts; null if the tool does not report it
	Failed     int       `json:"failed"`                 // in the undisturbed run, later than 500 ms included
	Blackhole  *float64  `json:"blackholeReportedMs"`    // of the injected second: attempts that the tool tells as failed or late, over the rate
	BoundsMs   []float64 `json:"blackholeBoundsMs,omitempty"`
	InjectedMs float64   `json:"blackholeInjectedMs,omitempty"`
}

// measured has the results that a tool reports for one run.
type measured struct {
	count, bad int
	achieved   float64
	late       *float64
	bounds     []float64
}

// benchTool runs one tool in the client's namespace. It passes its process to start, which measures the CPU time.
type benchTool struct {
	name string
	run  func(t *testing.T, w *network, base int64, rate float64) (measured, *os.ProcessState)
}

func TestBenchProbes(t *testing.T) {
	out := os.Getenv("HITLESS_BENCH_OUT")
	if out == "" {
		t.Fatal("run it with `make bench-probes`")
	}
	tools := []benchTool{{"hitless", runHitless}}
	if os.Getenv("HITLESS_BENCH_TOOLS") != "" {
		tools = append(tools, benchTool{"fortio", runFortio}, benchTool{"vegeta", runVegeta})
	}
	var rows []benchRow
	for _, tool := range tools {
		for _, rate := range benchRates {
			w := newBenchNetwork(t)
			m, state := tool.run(t, w, monotonic(t), rate)
			cpu := (state.UserTime() + state.SystemTime()).Seconds() * 1e6 / float64(max(1, m.count))
			row := benchRow{Tool: tool.name, Rate: rate, Achieved: m.achieved, CPU: cpu, Late: m.late, Failed: m.bad}
			if rate == blackRate {
				row.blackhole(t, tool)
			}
			rows = append(rows, row)
		}
	}
	writeBench(t, out, rows)
}

// newBenchNetwork returns new namespaces for a run, so that runs do not share connections in TIME_WAIT.
func newBenchNetwork(t *testing.T) *network {
	w := newNetwork(t)
	// Tools whose ports the kernel chooses get the whole port range: a run uses less than the half that connect(2) searches first.
	w.client.sysctl(t, "net.ipv4.ip_local_port_range", "1024 65535")
	server := exec.Command(os.Getenv("HITLESS_BENCH_PROGRAM"), "backend", "netexec", "--http-port", "8080", "--udp-port", "-1")
	server.Env = append(os.Environ(), "HITLESS_POD=web-1", "HITLESS_NODE=node-1", "HITLESS_GENERATION=abc")
	w.backend.must(t, server.Start)
	t.Cleanup(func() { _ = server.Process.Kill(); _ = server.Wait() })
	l := wiredLane(50)
	for deadline := time.Now().Add(5 * time.Second); ; {
		attempts := w.probe(t, monotonic(t), 0, l, 1)
		if len(attempts) == 1 && attempts[0].Class == record.OK {
			return w
		}
		if time.Now().After(deadline) {
			t.Fatalf("the backend does not answer: %+v", attempts)
		}
	}
}

// blackhole repeats the run with a second in which the router drops everything.
func (r *benchRow) blackhole(t *testing.T, tool benchTool) {
	w := newBenchNetwork(t)
	base := monotonic(t)
	type fault struct {
		began, ended [2]time.Duration
		err          error
	}
	done := make(chan fault, 1)
	go func() {
		var f fault
		f.began, f.ended, f.err = w.blackout(base, blackAfter, time.Second)
		done <- f
	}()
	m, _ := tool.run(t, w, base, r.Rate)
	f := <-done
	if f.err != nil {
		t.Fatal(f.err)
	}
	if least, most := f.ended[0]-f.began[1], f.ended[1]-f.began[0]; tool.name == "hitless" &&
		(len(m.bounds) != 2 || m.bounds[0] > most.Seconds()*1e3 || m.bounds[1] < least.Seconds()*1e3) {
		t.Errorf("hitless reports an outage of %v ms, %v to %v were injected", m.bounds, least, most)
	}
	told := float64(m.bad) / r.Rate * 1e3
	r.Blackhole, r.BoundsMs, r.InjectedMs = &told, m.bounds, (f.ended[0]-f.began[1]).Seconds()*1e3
}

// runHitless runs the probe worker with the options of a run with the real clock, and analyses its record.
func runHitless(t *testing.T, w *network, base int64, rate float64) (measured, *os.ProcessState) {
	c := exec.Command(os.Getenv("HITLESS_BENCH_PROGRAM"), WorkerName, "--short-turns")
	c.Env = append(os.Environ(), "GOGC=off", "GOMEMLIMIT=128MiB")
	in, out := pipes(t, c)
	w.client.must(t, c.Start)
	orders, err := NewOrders(in, base, base, nil)
	l := wiredLane(rate)
	l.DialDeadline = DefaultDialDeadline
	begin := time.Duration(monotonic(t)-base) + 100*time.Millisecond
	if err := errors.Join(err, orders.Start(l, begin), orders.Stop(l.ID, begin+benchTime)); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(benchTime+200*time.Millisecond, func() { in.Close() })
	dir := t.TempDir()
	history, err := record.NewHistoryWriter(dir, record.Run{})
	if err != nil {
		t.Fatal(err)
	}
	history.Event(l.Event(begin))
	m := measured{}
	var lateness []time.Duration
	for r := record.NewAttemptReader(out); ; {
		a, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		history.Attempt(a)
		lateness = append(lateness, a.Lateness())
		if a.Class != record.OK {
			m.bad++
		}
		if a.Class != record.Probe { // attempts of class probe were not made
			m.count++
		}
	}
	if err := errors.Join(c.Wait(), history.Close()); err != nil {
		t.Fatal(err)
	}
	h, err := record.OpenUnsealed(dir)
	if err != nil {
		t.Fatal(err)
	}
	report, err := analysis.Build(h)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range report.Lanes[0].Outages {
		if o.UpperMs > 100 {
			m.bounds = []float64{o.LowerMs, o.UpperMs}
		}
	}
	m.achieved, m.late = float64(m.count)/benchTime.Seconds(), milliseconds(quantile(lateness, 99))
	return m, c.ProcessState
}

func pipes(t *testing.T, c *exec.Cmd) (io.WriteCloser, io.Reader) {
	in, err1 := c.StdinPipe()
	out, err2 := c.StdoutPipe()
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	return in, out
}

// runFortio runs fortio with its own HTTP client, a connection per request and 64 loops, which reach the rate best.
func runFortio(t *testing.T, w *network, _ int64, rate float64) (measured, *os.ProcessState) {
	result := filepath.Join(t.TempDir(), "fortio.json")
	state, _ := inClient(t, w, filepath.Join(os.Getenv("HITLESS_BENCH_TOOLS"), "fortio"), "load", "-quiet", "-keepalive=false", "-uniform",
		"-c", "64", "-qps", fmt.Sprint(rate), "-t", benchTime.String(), "-timeout", "3s", "-allow-initial-errors", "-json", result,
		"http://203.0.113.10:80/hostname")
	data, err := os.ReadFile(result)
	if err != nil {
		t.Fatal(err)
	}
	var told struct {
		ActualQPS         float64
		DurationHistogram struct {
			Count int
			Data  []struct {
				Start float64
				Count int
			}
		}
		RetCodes map[string]int
	}
	if err := json.Unmarshal(data, &told); err != nil {
		t.Fatal(err)
	}
	m := measured{achieved: told.ActualQPS, count: told.DurationHistogram.Count}
	for code, n := range told.RetCodes {
		if code != "200" {
			m.bad += n
		}
	}
	for _, bucket := range told.DurationHistogram.Data {
		if bucket.Start >= slow.Seconds() {
			m.bad += bucket.Count
		}
	}
	return m, state
}

// runVegeta runs vegeta without a limit of workers.
func runVegeta(t *testing.T, w *network, _ int64, rate float64) (measured, *os.ProcessState) {
	vegeta := filepath.Join(os.Getenv("HITLESS_BENCH_TOOLS"), "vegeta")
	result := filepath.Join(t.TempDir(), "vegeta.bin")
	state, _ := inClient(t, w, "sh", "-c", fmt.Sprintf("echo 'GET http://203.0.113.10:80/hostname' | exec %s attack -keepalive=false -timeout 3s "+
		"-rate %v/1s -duration %s -output %s", vegeta, rate, benchTime, result))
	rows, err := exec.Command(vegeta, "encode", "-to", "csv", result).Output()
	if err != nil {
		t.Fatal(err)
	}
	records, err := csv.NewReader(bytes.NewReader(rows)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	m := measured{count: len(records)}
	starts := make([]time.Duration, len(records)) // by number
	for _, r := range records {
		at, err1 := strconv.ParseInt(r[0], 10, 64)
		took, err2 := strconv.ParseInt(r[2], 10, 64)
		number, err3 := strconv.Atoi(r[8])
		if err := errors.Join(err1, err2, err3); err != nil || number >= len(starts) {
			t.Fatalf("a line of vegeta's: %v: %q", err, r)
		}
		starts[number] = time.Duration(at)
		if r[1] != "200" || time.Duration(took) > slow {
			m.bad++
		}
	}
	begin, s := slices.Min(starts), schedule{rate: rate}
	lateness := make([]time.Duration, len(starts))
	for k, at := range starts {
		lateness[k] = at - begin - s.at(uint64(k))
	}
	m.achieved = float64(len(starts)-1) / (slices.Max(starts) - begin).Seconds()
	m.late = milliseconds(quantile(lateness, 99))
	return m, state
}

// inClient runs a program in the client's namespace until it ends.
func inClient(t *testing.T, w *network, program string, args ...string) (*os.ProcessState, string) {
	t.Helper()
	c := exec.Command(program, args...)
	c.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	w.client.must(t, func() error {
		if err := c.Run(); err != nil {
			return fmt.Errorf("%w: %s", err, out.String())
		}
		return nil
	})
	return c.ProcessState, out.String()
}

func milliseconds(d time.Duration) *float64 {
	ms := d.Seconds() * 1e3
	return &ms
}

// writeBench writes the rows as JSON, and as the table for docs/results/probe-engine.md.
func writeBench(t *testing.T, file string, rows []benchRow) {
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.MarshalIndent(map[string]any{"schemaVersion": 1, "command": "make bench-probes",
		"loadAverage": strings.Fields(string(load))[0], "rows": rows}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	table.WriteString("| tool | asked/s | made/s | CPU µs/connection | start late p99 | 1 s of silence is told as |\n|---|---:|---:|---:|---:|---|\n")
	for _, r := range rows {
		late, told := "not told", ""
		if r.Late != nil {
			late = fmt.Sprintf("%.2f ms", *r.Late)
		}
		if r.Blackhole != nil {
			told = fmt.Sprintf("%.0f ms of the schedule failed or late", *r.Blackhole)
		}
		if len(r.BoundsMs) == 2 {
			told = fmt.Sprintf("an outage of %.1f–%.1f ms (injected: %.1f)", r.BoundsMs[0], r.BoundsMs[1], r.InjectedMs)
		}
		fmt.Fprintf(&table, "| %s | %.0f | %.0f | %.0f | %s | %s |\n", r.Tool, r.Rate, r.Achieved, r.CPU, late, told)
	}
	for name, content := range map[string][]byte{file: append(data, '\n'), strings.TrimSuffix(file, ".json") + ".md": []byte(table.String())} {
		if err := os.WriteFile(name, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
