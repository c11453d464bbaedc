package session

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/testfiles"
	"github.com/hitless/hitless/probes"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/reports"
)

// checkVerdict checks the verdict. It skips the test when nothing but a busy machine made the run invalid, because other checks would fail too.
func checkVerdict(t *testing.T, r *analysis.Report, want analysis.Verdict) {
	t.Helper()
	if r.Verdict == analysis.Invalid && testfiles.OnlyLate(r.Reasons) {
		t.Skipf("the machine is too busy to measure: %q", r.Reasons)
	}
	if r.Verdict != want {
		t.Errorf("verdict %s, want %s: %q", r.Verdict, want, r.Reasons)
	}
}

func shortOptions(target string, t *testing.T) Options {
	return Options{Target: target, Duration: time.Second, Out: t.TempDir(), Command: "hitless probe"}
}

func good(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("web-1")) }

func reportOf(r *Result, err error) (*analysis.Report, error) {
	if err != nil {
		return nil, err
	}
	return r.Report, nil
}

// A session proves its detector on the target, and its detection floor is that of the proof.
func TestUndisturbedTargetPasses(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(good))
	defer server.Close()
	o := shortOptions(server.Listener.Addr().String(), t)
	var mu sync.Mutex
	counted := 0
	o.OnSecond = func(s Second) {
		mu.Lock()
		defer mu.Unlock()
		counted += s.Classes[record.OK]
	}
	r, err := reportOf(Run(context.Background(), o))
	if err != nil {
		t.Fatal(err)
	}
	checkVerdict(t, r, analysis.Pass)
	if r.DetectionFloor.Ms == nil || *r.DetectionFloor.Ms != 20 || len(r.DetectionFloor.Found) != len(proof) {
		t.Errorf("floor %+v, want 20 ms with both faults found", r.DetectionFloor)
	}
	if r.Totals.Dropped != 0 || r.Totals.Delayed != 0 || r.Totals.Attempts < 400 {
		t.Errorf("%+v, want at least 400 attempts in 4.5 s and no loss", r.Totals)
	}
	if counted == 0 || counted > r.Totals.OK {
		t.Errorf("the seconds have %d ok attempts of %d", counted, r.Totals.OK)
	}
	if _, err := analysis.Read(filepath.Join(o.Out, reports.ReportFile)); err != nil {
		t.Error(err)
	}
}

// The red twin: a target that is closed for 200 ms fails, and the outage's bounds contain its length.
func TestOutageIsFoundAndBounded(t *testing.T) {
	t.Parallel()
	server := &http.Server{Handler: http.HandlerFunc(good)}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	go func() { _ = server.Serve(listener) }()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var away time.Duration
	o := shortOptions(address, t)
	o.Duration = time.Minute // the context ends earlier
	o.Record = record.RecordThinned
	changed := make(chan struct{})
	o.Progress = func(text string) {
		if !strings.HasPrefix(text, "measuring") {
			return
		}
		go func() {
			defer close(changed)
			defer time.AfterFunc(300*time.Millisecond, cancel)
			begin := time.Now()
			listener.Close()
			time.Sleep(200 * time.Millisecond) // length of the outage
			again, err := net.Listen("tcp", address)
			away = time.Since(begin)
			if err != nil {
				t.Error(err)
				return
			}
			go func() { _ = server.Serve(again) }()
		}()
	}
	r, err := reportOf(Run(ctx, o))
	if err != nil {
		t.Fatal(err)
	}
	<-changed
	server.Close()
	checkVerdict(t, r, analysis.Fail)
	if len(r.Lanes) != 1 || len(r.Lanes[0].Outages) != 1 {
		t.Fatalf("%+v, want one lane with one outage", r.Lanes)
	}
	found, ms := r.Lanes[0].Outages[0], away.Seconds()*1e3
	if found.LowerMs > ms || found.UpperMs < ms-1 || found.Classes["refused"] < 10 {
		t.Errorf("an outage of %.1f ms was reported as %+v", ms, found)
	}
}

// The proof works with every protocol.
func TestEveryProtocol(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(good))
	t.Cleanup(server.Close) // after the parallel subtests
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	go func() {
		buffer := make([]byte, 512)
		for {
			n, from, err := conn.ReadFrom(buffer)
			if err != nil {
				return
			}
			if number, is := strings.CutPrefix(string(buffer[:n]), "attempt "); is {
				_, _ = conn.WriteTo([]byte(number+" web-1 - - - 0"), from)
			}
		}
	}()
	targets := map[bool]string{false: server.Listener.Addr().String(), true: conn.LocalAddr().String()}
	for _, protocol := range probes.Protocols() {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			o := shortOptions(targets[strings.HasPrefix(protocol, "udp")], t)
			o.Protocol = protocol
			r, err := reportOf(Run(context.Background(), o))
			if err != nil {
				t.Fatal(err)
			}
			checkVerdict(t, r, analysis.Pass)
			if len(r.DetectionFloor.Found) != len(proof) || r.Totals.Dropped > 0 || r.Lanes[0].Protocol != protocol {
				t.Errorf("%+v with %+v", r.DetectionFloor, r.Totals)
			}
		})
	}
}

// A machine that did not run trips a guard, also with a lane whose lateness would not show it.
func TestStalledMachineTripsAGuard(t *testing.T) {
	last := time.Minute
	if _, late := checkTick(last, last+1200*time.Millisecond); late {
		t.Error("200 ms tripped the guard")
	}
	e, late := checkTick(last, last+1300*time.Millisecond)
	g, is := e.Body.(record.Guard)
	if !late || !is || !strings.Contains(e.Text, "300ms") || g.From > last || g.Until < e.At {
		t.Errorf("%v, %+v", late, e)
	}
}

// A machine that was suspended trips a guard, although its monotonic clock stood still.
func TestSuspendedMachineTripsAGuard(t *testing.T) {
	last := time.Minute
	if _, was := checkSuspended(last, last+time.Second, 200*time.Millisecond); was {
		t.Error("200 ms tripped the guard")
	}
	e, was := checkSuspended(last, last+time.Second, 10*time.Minute)
	g, is := e.Body.(record.Guard)
	if !was || !is || !strings.Contains(e.Text, "10m0s") || g.From > last || e.At != last+time.Second || g.Until < e.At+backWithin {
		t.Errorf("%v, %+v", was, e)
	}
}

// Attempts that were not made in time trip one guard for each stop of the machine; other faults of the probe trip none.
func TestAttemptsThatStartTooLateTripAGuard(t *testing.T) {
	late := record.Attempt{Intended: time.Minute, Class: record.Probe, Detail: probes.DetailLate}
	now := time.Minute + 400*time.Millisecond
	e, trips := checkStart(late, now, 0)
	g, is := e.Body.(record.Guard)
	if !trips || !is || g.From >= late.Intended || g.Until <= now {
		t.Fatalf("%v, %+v", trips, e)
	}
	next := late
	next.Intended += 100 * time.Millisecond
	if _, again := checkStart(next, now, g.Until); again {
		t.Error("the next attempt of the same stop trips another guard")
	}
	for _, other := range []record.Attempt{{Intended: time.Minute, Class: record.OK}, {Intended: time.Minute, Class: record.Probe, Detail: probes.DetailNoTuple}} {
		if _, trips := checkStart(other, now, 0); trips {
			t.Errorf("%+v trips a guard", other)
		}
	}
}

func TestEndBeforeTheProofIsInvalid(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var baseline atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if good(w, r); baseline.Load() {
			cancel()
		}
	}))
	defer server.Close()
	o := shortOptions(server.Listener.Addr().String(), t)
	var said []string
	o.Progress = func(text string) {
		said = append(said, text)
		baseline.Store(strings.HasPrefix(text, "baseline"))
	}
	r, err := reportOf(Run(ctx, o))
	if err != nil {
		t.Fatal(err)
	}
	if last := said[len(said)-1]; !strings.HasPrefix(last, "ended before the detector was proved") {
		t.Errorf("its last words are %q", last)
	}
	if r.Verdict != analysis.Invalid || r.DetectionFloor.Ms != nil {
		t.Errorf("verdict %s with floor %v, want invalid without one", r.Verdict, r.DetectionFloor.Ms)
	}
}

// A target with unknown answers is measured: its first status is ok, another one a wrong answer.
func TestTargetWithUnknownBackend(t *testing.T) {
	t.Parallel()
	var once sync.Once
	var first time.Time
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		once.Do(func() { first = time.Now() })
		if time.Since(first) > 2*time.Second {
			w.WriteHeader(http.StatusOK)
		} else {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = w.Write(make([]byte, 100_000))
	}))
	defer server.Close()
	r, err := reportOf(Run(context.Background(), shortOptions(server.Listener.Addr().String(), t)))
	if err != nil {
		t.Fatal(err)
	}
	if r.Totals.ByClass["wrong-answer"] == 0 || r.Totals.OK == 0 {
		t.Errorf("%+v, want good 404 answers, then wrong ones", r.Totals)
	}
	if !slices.ContainsFunc(r.Reasons, func(s string) bool { return strings.Contains(s, "baseline is not clean") }) {
		t.Errorf("reasons %q, want one about the baseline", r.Reasons)
	}
}

func TestTargetsThatCannotBeMeasuredAreRejected(t *testing.T) {
	t.Parallel()
	broken := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }))
	defer broken.Close()
	for name, test := range map[string]struct {
		change func(*Options)
		want   string
	}{
		"a broken target":     {func(o *Options) { o.Target = broken.Listener.Addr().String() }, "broken before"},
		"a closed port":       {func(o *Options) { o.Target = testfiles.Refusing(t).String() }, "cannot be measured"},
		"no port":             {func(o *Options) { o.Target = "203.0.113.1" }, "HOST:PORT"},
		"port 0":              {func(o *Options) { o.Target = "203.0.113.1:0" }, "1 to 65535"},
		"an empty host":       {func(o *Options) { o.Target = ":80" }, "looking up"},
		"0.0.0.0":             {func(o *Options) { o.Target = "0.0.0.0:80" }, "not an address"},
		"::":                  {func(o *Options) { o.Target = "[::]:80" }, "not an address"},
		"an unknown protocol": {func(o *Options) { o.Protocol = "sctp" }, "unknown"},
		"a negative duration": {func(o *Options) { o.Duration = -1 }, "negative"},
		"an unknown record":   {func(o *Options) { o.Record = "some" }, "all and thinned"},
		"too many ports":      {func(o *Options) { o.Rate = 2000 }, "28229 five-tuples"},
		"a UDP port that refuses": {func(o *Options) {
			o.Target, o.Protocol = testfiles.RefusingUDP(t).String(), probes.ProtocolUDPFresh
		}, "attempt NUMBER"},
	} {
		o := shortOptions(broken.Listener.Addr().String(), t)
		if name == "too many ports" {
			server := httptest.NewServer(http.HandlerFunc(good))
			defer server.Close()
			o.Target = server.Listener.Addr().String()
		}
		test.change(&o)
		if _, err := Run(context.Background(), o); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want an error with %q", name, err, test.want)
		}
	}
}

// A UDP target whose answer is wrong, or that refuses, is asked again after a pause: a busy loop would be a flood.
func TestUDPTargetIsAskedWithPauses(t *testing.T) {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	var asked atomic.Int32
	go func() {
		buffer := make([]byte, 512)
		for _, from, err := conn.ReadFrom(buffer); err == nil; _, from, err = conn.ReadFrom(buffer) {
			asked.Add(1)
			_, _ = conn.WriteTo([]byte("who is there?"), from)
		}
	}()
	l := probes.Lane{Target: netip.MustParseAddrPort(conn.LocalAddr().String()), Protocol: probes.ProtocolUDPFresh,
		DialDeadline: 100 * time.Millisecond, ReplyDeadline: 400 * time.Millisecond}
	if err := CheckTarget(t.Context(), &l); err == nil {
		t.Error("a wrong answer is accepted")
	}
	if n := asked.Load(); n == 0 || n > 10 {
		t.Errorf("the target was asked %d times in half a second", n)
	}
	l.Target = testfiles.RefusingUDP(t)
	if err := CheckTarget(t.Context(), &l); err == nil {
		t.Error("a target that refuses is accepted")
	}
}

func TestSecondString(t *testing.T) {
	s := Second{At: 12 * time.Second, Slowest: 1500 * time.Microsecond,
		Classes: map[record.Class]int{record.OK: 97, record.Rejected: 2, record.Delayed: 1}}
	if got, want := s.String(), "+   12 s     97 ok  slowest 1.5 ms  1 delayed, 2 rejected"; got != want || s.Failed() != 3 {
		t.Errorf("%q with %d failed, want %q with 3", got, s.Failed(), want)
	}
}

// The digest of the program is not read after an interrupt.
func TestHeaderAfterAnInterrupt(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := (Options{}).Header(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want the end of the context", err)
	}
}
