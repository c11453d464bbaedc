//go:build linux

package guest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"sync"
	"time"

	"github.com/hitless/hitless/lab"
	"github.com/hitless/hitless/lab/topology"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios"
)

// The requests of a loop, which is what an operator would type: `while sleep 1; do curl --max-time 0.5 URL; done`.
const (
	loopPeriod  = time.Second
	loopMaxTime = "0.5" // seconds, of curl
)

// loop requests the target of the first measured lane with curl, once a second, while that lane runs. It shares nothing with the probes, and
// its requests are no attempts: `hitless verify` compares them with the report.
type loop struct {
	scenarios.Prober
	from *topology.Namespace
	now  func() time.Duration

	mu    sync.Mutex
	began bool
	lines bytes.Buffer
	err   error
}

// StartLane starts a lane, and with the first measured one the loop. The loop ends before the lane does.
func (l *loop) StartLane(ctx context.Context, spec scenarios.LaneSpec) (func() error, error) {
	stop, err := l.Prober.StartLane(ctx, spec)
	if err != nil || !l.begin(spec) {
		return stop, err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { l.run(ctx, spec.Target); close(done) }()
	return func() error { cancel(); <-done; return stop() }, nil
}

// begin reports whether the loop begins with this lane.
func (l *loop) begin(spec scenarios.LaneSpec) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.began || spec.Control || spec.Role != "" || record.Datagrams(spec.Protocol) {
		return false
	}
	l.began = true
	return true
}

func (l *loop) run(ctx context.Context, target string) {
	tick := time.NewTicker(loopPeriod)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if err := l.request(ctx, target, n); err != nil {
				l.mu.Lock()
				l.err = errors.Join(l.err, err)
				l.mu.Unlock()
				return
			}
		}
	}
}

// request runs curl once. Its ports are not those of lanes: a five-tuple that an attempt has used may still have a conntrack entry.
func (l *loop) request(ctx context.Context, target string, n int) error {
	port := record.FirstLoopPort + n%record.LoopPorts
	var curl *exec.Cmd
	r := record.LoopRequest{At: l.now(), Port: uint16(port)}
	err := l.from.Do(func() error {
		curl = exec.Command(curlPath, "--silent", "--output", "/dev/null", "--max-time", loopMaxTime, "--local-port", strconv.Itoa(port), "http://"+target+"/")
		return curl.Start()
	})
	if err != nil {
		return fmt.Errorf("starting curl: %w", err)
	}
	if err := curl.Wait(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		return fmt.Errorf("running curl: %w", err)
	}
	r.Took, r.Exit = l.now()-r.At, curl.ProcessState.ExitCode()
	line, err := json.Marshal(r)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines.Write(append(line, '\n'))
	return err
}

// save writes the requests beside the history.
func (l *loop) save(file func(name string, data []byte)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	data, err := io.ReadAll(&l.lines)
	file(record.LoopFile, data)
	return errors.Join(l.err, err)
}

// withLoop adds the loop to the lanes, if the plan says so. save writes its requests.
func withLoop(lanes scenarios.Prober, l *lab.Lab, plan Plan, r *recorder, now func() time.Duration) (asked scenarios.Prober, save func() error) {
	if !plan.Loop {
		return lanes, func() error { return nil }
	}
	own := &loop{Prober: lanes, from: l.Net.Client, now: now}
	return own, func() error { return own.save(r.file) }
}
