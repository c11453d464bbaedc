package probes

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/reports"
)

// BenchmarkLoopback measures the CPU that one connection costs the client (connect, request, answer, close over
// loopback; the server is another process), and how late the starts are. b.N is the number of connections.
func BenchmarkLoopback(b *testing.B) {
	for _, rate := range []float64{200, 1000, 5000} {
		for _, end := range []string{CloseFIN, CloseRST} {
			b.Run(fmt.Sprintf("rate=%v/close=%s", rate, end), func(b *testing.B) {
				defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // as Command does
				benchmarkLane(b, Lane{ID: 1, Name: "bench", Target: backendProcess(b), Rate: rate, Close: end,
					SourcePrefix: netip.MustParsePrefix("127.1.0.0/16")})
			})
		}
	}
}

// BenchmarkDialer is what BenchmarkLoopback is to be compared with: the same connections at the same rate, made in the
// ordinary way, with a goroutine and a net.Dialer for each.
func BenchmarkDialer(b *testing.B) {
	for _, rate := range []float64{200, 1000, 5000} {
		b.Run(fmt.Sprintf("rate=%v/close=%s", rate, CloseRST), func(b *testing.B) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
			target := backendProcess(b).String()
			var before, after unix.Rusage
			_ = unix.Getrusage(unix.RUSAGE_SELF, &before)
			b.ReportAllocs()
			b.ResetTimer()
			start, attempts := time.Now(), schedule{rate: rate}
			var all sync.WaitGroup
			for k := range b.N {
				time.Sleep(time.Until(start.Add(attempts.at(uint64(k)))))
				all.Go(func() { dialOnce(b, target) })
			}
			all.Wait()
			b.StopTimer()
			_ = unix.Getrusage(unix.RUSAGE_SELF, &after)
			b.ReportMetric(float64(cpu(after)-cpu(before))/1e3/float64(b.N), "cpu-µs/conn")
			b.ReportMetric(float64(after.Nvcsw-before.Nvcsw)/float64(b.N), "switches/conn")
		})
	}
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

var benchmarks int64

func benchmarkLane(b *testing.B, l Lane) {
	sink := newSink(discard{}, func(error) {})
	bad := map[reports.Class]int{}
	benchmarks++ // another seed walks other five-tuples than those that the last one left in TIME_WAIT
	engine, err := New(Config{Base: monotonic(b), Seed: benchmarks, Flush: sink.flush, Record: func(a reports.Attempt) {
		sink.record(a)
		if a.Class != reports.OK {
			bad[a.Class]++
		}
	}})
	if err != nil {
		b.Fatal(err)
	}
	var before, after unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &before); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.ResetTimer()
	start := engine.Now()
	if err := engine.Start(l, start); err != nil {
		b.Fatal(err)
	}
	if err := engine.Stop(l.ID, start+schedule{rate: l.Rate}.at(uint64(b.N))); err != nil {
		b.Fatal(err)
	}
	timer := time.AfterFunc(time.Duration(float64(b.N)/l.Rate*1e9), engine.Close)
	defer timer.Stop()
	if err := engine.Run(context.Background()); err != nil {
		b.Fatal(err)
	}
	b.StopTimer()
	if err := unix.Getrusage(unix.RUSAGE_SELF, &after); err != nil {
		b.Fatal(err)
	}
	lateness := engine.Stats()[0].Lateness
	b.ReportMetric(float64(cpu(after)-cpu(before))/1e3/float64(b.N), "cpu-µs/conn")
	b.ReportMetric(float64(lateness.ValueAtQuantile(50))/1e6, "late-p50-ms")
	b.ReportMetric(float64(lateness.ValueAtQuantile(99))/1e6, "late-p99-ms")
	b.ReportMetric(float64(after.Nvcsw-before.Nvcsw)/float64(b.N), "switches/conn")
	if len(bad) > 0 {
		b.Logf("attempts that were not ok: %v", bad)
	}
}

func cpu(r unix.Rusage) int64 { return r.Utime.Nano() + r.Stime.Nano() }

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// monotonic reads CLOCK_MONOTONIC.
func monotonic(t testing.TB) int64 {
	t.Helper()
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		t.Fatal(err)
	}
	return ts.Nano()
}
