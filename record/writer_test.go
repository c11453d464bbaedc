package record

import (
	"errors"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

var _ Recorder = (*HistoryWriter)(nil)

func TestAHistoryComesBackAsItWasRecorded(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir := t.TempDir()
		text := rapid.SampledFrom([]string{"", "a <b> & \"c\"", "zwei\nZeilen", "→ node-2"})
		wantAttempts := rapid.SliceOfN(anyAttempt(), 0, 10).Draw(rt, "attempts")
		wantEvents := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Event {
			return Event{At: time.Duration(rapid.Int64().Draw(t, "at")), Node: text.Draw(t, "node"), Object: text.Draw(t, "object"),
				Text: text.Draw(t, "text"), Body: anyBody(t)}
		}), 0, 10).Draw(rt, "events")
		run := Run{Scenario: "rollout", Seed: 1 << 60, Parameters: map[string]string{"rollouts": "1"}, Nodes: []string{"node-1"}}
		w, err := NewHistoryWriter(dir, run)
		if err != nil {
			rt.Fatal(err)
		}
		for _, e := range wantEvents {
			w.Event(e)
		}
		for _, a := range wantAttempts {
			w.Attempt(a)
		}
		if err := w.Close(); err != nil {
			rt.Fatal(err)
		}
		h, err := OpenUnsealed(dir)
		if err != nil {
			rt.Fatal(err)
		}
		run.SchemaVersion = HistoryVersion
		var events []Event
		for e, err := range h.Events() {
			if err != nil {
				rt.Fatal(err)
			}
			events = append(events, e)
		}
		var attempts []Attempt
		for a, err := range h.Attempts() {
			if err != nil {
				rt.Fatal(err)
			}
			attempts = append(attempts, a)
		}
		if diff := cmp.Diff(run, h.Run) + cmp.Diff(wantEvents, events, cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{})) +
			cmp.Diff(wantAttempts, attempts, sameAddresses, cmpopts.EquateEmpty()); diff != "" {
			rt.Fatalf("the history changed (-recorded +read):\n%s", diff)
		}
	})
}

// A line as long as a program logged it hides none of the events after it.
func TestALongEventComesBack(t *testing.T) {
	dir, long := t.TempDir(), strings.Repeat("a", 3<<20)
	w, err := NewHistoryWriter(dir, Run{Scenario: "rollout"})
	if err != nil {
		t.Fatal(err)
	}
	w.Event(Event{Text: long, Body: Log{Program: "proxy", Level: "error"}})
	w.Event(Event{Text: "next", Body: Log{Program: "proxy", Level: "info"}})
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	h, err := OpenUnsealed(dir)
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for e, err := range h.Events() {
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, e.Text)
	}
	if !slices.Equal(texts, []string{long, "next"}) {
		t.Errorf("%d events came back", len(texts))
	}
}

func TestTheFirstErrorOfADiskComesOutAtTheEnd(t *testing.T) {
	for _, file := range []string{EventsFile, AttemptsFile} {
		t.Run(file, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.Symlink("/dev/full", filepath.Join(dir, file)); err != nil {
				t.Fatal(err)
			}
			w, err := NewHistoryWriter(dir, Run{})
			if err != nil {
				t.Fatal(err)
			}
			for i := range 5000 {
				w.Event(Event{Body: Log{}, Text: strings.Repeat("x", 40)})
				w.Attempt(Attempt{Seq: uint64(i), Class: OK})
			}
			err = w.Close()
			if err == nil || !strings.Contains(err.Error(), "disk is full") || !strings.Contains(err.Error(), dir) {
				t.Fatalf("a full disk gave %v; the error must name the folder and say that the disk is full", err)
			}
			if again := w.Close(); again == nil || again.Error() != err.Error() {
				t.Fatalf("closing again gave %v, want the first error", again)
			}
		})
	}
}

func TestAFolderThatCannotBeMadeIsAnErrorAtOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := NewHistoryWriter(filepath.Join(file, "history"), Run{}); err == nil || !strings.Contains(err.Error(), file) {
		t.Fatalf("a history below a file gave %v", err)
	}
}

func TestManyMayRecordAtOnce(t *testing.T) {
	dir := t.TempDir()
	w, err := NewHistoryWriter(dir, Run{})
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for lane := range uint16(4) {
		group.Go(func() {
			for i := range uint64(500) {
				w.Attempt(Attempt{Lane: lane, Seq: i, Class: OK, Backend: "web"})
				w.Event(Event{Body: Log{}, Object: "x"})
			}
		})
	}
	group.Wait()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	h, err := OpenUnsealed(dir)
	if err != nil {
		t.Fatal(err)
	}
	next := map[uint16]uint64{}
	for a, err := range h.Attempts() {
		if err != nil {
			t.Fatal(err)
		}
		if a.Seq != next[a.Lane] {
			t.Fatalf("lane %d: attempt %d stands where %d belongs", a.Lane, a.Seq, next[a.Lane])
		}
		next[a.Lane]++
	}
	if want := map[uint16]uint64{0: 500, 1: 500, 2: 500, 3: 500}; !cmp.Equal(next, want) {
		t.Fatalf("attempts by lane: %v, want %v", next, want)
	}
}

// An observer that has not noticed the end yet records nothing while Close writes what a thinned record holds.
func TestClosingExcludesOthers(t *testing.T) {
	w, err := NewHistoryWriter(t.TempDir(), Run{Record: RecordThinned})
	if err != nil {
		t.Fatal(err)
	}
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	w.attempts = NewAttemptWriter(in)
	w.thinner = NewThinner(w.attempts)
	w.Event(Event{Body: Lane{ID: 1, Rate: 100, Protocol: ProtocolNew}})
	for i := range 50_000 {
		w.Attempt(Attempt{Lane: 1, Seq: uint64(i), Class: OK, Start: time.Duration(i), Backend: "web-1"})
	}
	closed := make(chan error, 1)
	go func() { closed <- errors.Join(w.Close(), in.Close()) }()
	if _, err := out.Read(make([]byte, 1)); err != nil { // Close writes now, and waits for a reader
		t.Fatal(err)
	}
	if w.mu.TryLock() {
		t.Error("others may record while Close writes")
		w.mu.Unlock()
	}
	const pipe = 1 << 16 // what it takes without a reader
	if n, err := io.Copy(io.Discard, out); n < 2*pipe || err != nil {
		t.Errorf("Close wrote %d bytes, too few to wait: %v", n, err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

func TestTheHashIsOfTheThreeFilesAndTheirNames(t *testing.T) {
	sum := func(dir string) string {
		t.Helper()
		s, err := HistorySha256(dir)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	make := func() string {
		dir := t.TempDir()
		w, err := NewHistoryWriter(filepath.Join(dir, "history"), Run{Scenario: "x"})
		if err != nil {
			t.Fatal(err)
		}
		w.Event(Event{Body: Log{}})
		w.Attempt(Attempt{Class: OK})
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	dir := make()
	first := sum(dir)
	if len(first) != 64 || sum(filepath.Join(dir, "history")) != first || sum(make()) != first {
		t.Fatalf("equal histories have unequal hashes (%s)", first)
	}
	for _, name := range []string{RunFile, EventsFile, AttemptsFile} {
		changed := make()
		file := filepath.Join(changed, "history", name)
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, append(data, '\n'), 0o600); err != nil {
			t.Fatal(err)
		}
		if sum(changed) == first {
			t.Errorf("a change of %s did not change the hash", name)
		}
	}
	if err := os.Remove(filepath.Join(dir, "history", EventsFile)); err != nil {
		t.Fatal(err)
	}
	if _, err := HistorySha256(dir); err == nil || !strings.Contains(err.Error(), EventsFile) {
		t.Errorf("a missing %s gave %v", EventsFile, err)
	}
}

// anyBody draws the body of an event of any kind, with every field that the kind can keep.
func anyBody(t *rapid.T) Body {
	v := reflect.New(reflect.TypeOf(rapid.SampledFrom(bodies).Draw(t, "body"))).Elem()
	for _, a := range attributes[v.Interface().(Body).Kind()] {
		fill(t, v.Field(a.index), a.key)
	}
	if l, is := v.Interface().(Lane); is && l.Service == "" {
		l.Local = false // is not kept without a Service
		return l
	}
	if m, is := v.Interface().(Membership); is && m.Policy != BalancerRoundRobin && m.Seed == nil {
		m.Policy = BalancerRoundRobin
		return m
	}
	return v.Interface().(Body)
}

func fill(t *rapid.T, v reflect.Value, key string) {
	address := netip.MustParseAddr(rapid.SampledFrom([]string{"10.0.0.1", "2001:db8::1"}).Draw(t, "address"))
	port := netip.AddrPortFrom(address, rapid.Uint16().Draw(t, "port"))
	switch v.Interface().(type) {
	case time.Duration:
		v.Set(reflect.ValueOf(time.Duration(rapid.Int64Range(0, 1<<20).Draw(t, key)) * unit(key)))
	case netip.Addr:
		v.Set(reflect.ValueOf(address))
	case netip.AddrPort:
		v.Set(reflect.ValueOf(port))
	case []string:
		v.Set(reflect.ValueOf(rapid.SliceOfN(rapid.SampledFrom([]string{"node-1", "node-2"}), 0, 3).Draw(t, key)))
	case FlowList:
		v.Set(reflect.ValueOf(FlowList{{Source: netip.AddrPortFrom(address.Unmap(), 1), Node: "node-1", At: 5}}))
	case BackendList:
		v.Set(reflect.ValueOf(BackendList{{Address: port, Weight: 1}}))
	case string:
		v.SetString(rapid.SampledFrom([]string{"", "sticky", "a <b> & \"c\"", "→ node-2"}).Draw(t, key))
	case bool:
		v.SetBool(rapid.Bool().Draw(t, key))
	case float64:
		v.SetFloat(rapid.Float64Range(0.001, 5000).Draw(t, key))
	default:
		fillNumber(t, v, key)
	}
}

func fillNumber(t *rapid.T, v reflect.Value, key string) {
	n := rapid.Uint16().Draw(t, key)
	switch {
	case v.Kind() == reflect.Pointer && n%2 == 0:
		v.Set(reflect.New(v.Type().Elem()))
		v.Elem().Set(reflect.ValueOf(n).Convert(v.Type().Elem()))
	case v.Kind() != reflect.Pointer:
		v.Set(reflect.ValueOf(n).Convert(v.Type()))
	}
}
