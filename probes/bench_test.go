//go:build unix

package probes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/record"
)

// BenchmarkLoopback measures the client's CPU per connection (connect, request, answer, close over loopback; the server
// is another process) and the lateness of starts. b.N is the number of connections:
//
//	go test -run '^$' -bench Loopback -benchtime 10000x ./probes
func BenchmarkLoopback(b *testing.B) {
	for _, rate := range []float64{200, 1000, 5000} {
		for _, end := range []string{CloseFIN, CloseRST} {
			b.Run(fmt.Sprintf("rate=%v/close=%s", rate, end), func(b *testing.B) {
				l := Lane{ID: 1, Name: "bench", Target: benchmarkTarget(b), Rate: rate, Close: end,
					SourcePrefix: netip.MustParsePrefix("127.1.0.0/16")}
				if err := benchmarkLane(b, l); err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}

// BenchmarkDialer is the baseline of BenchmarkLoopback: the same connections at the same rate, each with a goroutine
// and a net.Dialer.
func BenchmarkDialer(b *testing.B) {
	for _, rate := range []float64{200, 1000, 5000} {
		b.Run(fmt.Sprintf("rate=%v/close=%s", rate, CloseRST), func(b *testing.B) {
			target := benchmarkTarget(b).String()
			lateness := make([]time.Duration, b.N)
			m := measure(b)
			start, attempts := time.Now(), schedule{rate: rate}
			var all sync.WaitGroup
			for k := range b.N {
				at := start.Add(attempts.at(uint64(k)))
				time.Sleep(time.Until(at))
				all.Go(func() {
					lateness[k] = time.Since(at)
					dialOnce(b, target)
				})
			}
			all.Wait()
			m.report(b, quantile(lateness, 50), quantile(lateness, 99))
		})
	}
}

func benchmarkTarget(b *testing.B) netip.AddrPort {
	target, err := backendProcess(b, "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	return target
}

func dialOnce(b *testing.B, target string) {
	c, err := (&net.Dialer{Timeout: 3 * time.Second}).Dial("tcp", target)
	if err != nil {
		b.Error(err)
		return
	}
	defer c.Close()
	_ = c.(*net.TCPConn).SetLinger(0)
	_ = c.SetDeadline(time.Now().Add(time.Second))
	if _, err := io.WriteString(c, "GET /hostname HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		b.Error(err)
	}
	if _, err := c.Read(make([]byte, 1024)); err != nil {
		b.Error(err)
	}
}

// benchmarkLane makes b.N attempts in the caller's network namespace.
func benchmarkLane(b *testing.B, l Lane) error {
	sink := newSink(io.Discard, func(error) {})
	base := monotonic(b)
	lateness, classes := record.Bins{}, map[record.Class]int{}
	count := func(a record.Attempt) {
		lateness.Add(a.Lateness(), 1)
		classes[a.Class]++
		sink.record(a)
	}
	// The seed changes, so that no five-tuple is in TIME_WAIT from the last benchmark.
	engine, err := New(Config{Base: base, Seed: base, Record: count, Flush: sink.flush})
	if err != nil {
		return err
	}
	m := measure(b)
	start := engine.Now()
	end := start + schedule{rate: l.Rate}.at(uint64(b.N))
	if err := errors.Join(engine.Start(l, start), engine.Stop(l.ID, end)); err != nil {
		return err
	}
	timer := time.AfterFunc(end-start, engine.Close)
	defer timer.Stop()
	if err := errors.Join(engine.Run(context.Background()), sink.close()); err != nil {
		return err
	}
	m.report(b, lateness.Quantile(0.5), lateness.Quantile(0.99))
	if bad := b.N - classes[record.OK]; bad > 0 {
		b.Logf("%d of %d attempts were not ok: %v", bad, b.N, classes)
	}
	return nil
}

// usage is the resource usage at the start of a measurement.
type usage struct {
	before unix.Rusage
	procs  int
}

// measure starts a measurement with one processor, like the worker program.
func measure(b *testing.B) *usage {
	u := &usage{procs: runtime.GOMAXPROCS(1)}
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u.before) // fails only for bad arguments
	b.ReportAllocs()
	b.ResetTimer()
	return u
}

func (u *usage) report(b *testing.B, p50, p99 time.Duration) {
	b.StopTimer()
	var after unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &after)
	runtime.GOMAXPROCS(u.procs)
	cpu := func(r unix.Rusage) int64 { return r.Utime.Nano() + r.Stime.Nano() }
	b.ReportMetric(float64(cpu(after)-cpu(u.before))/1e3/float64(b.N), "cpu-µs/conn")
	b.ReportMetric(float64(after.Nvcsw-u.before.Nvcsw)/float64(b.N), "switches/conn")
	b.ReportMetric(p50.Seconds()*1e3, "late-p50-ms")
	b.ReportMetric(p99.Seconds()*1e3, "late-p99-ms")
}

func quantile(d []time.Duration, percent int) time.Duration {
	sorted := slices.Sorted(slices.Values(d))
	return sorted[min(len(sorted)*percent/100, len(sorted)-1)]
}

// monotonic reads CLOCK_MONOTONIC.
func monotonic(t testing.TB) int64 {
	t.Helper()
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		t.Fatal(err)
	}
	return ts.Nano()
}
