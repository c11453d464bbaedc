package scenarios

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/record"
)

// fakeClock is a clock that only Sleep advances.
type fakeClock struct{ now time.Duration }

func (c *fakeClock) Now() time.Duration { return c.now }

func (c *fakeClock) Sleep(_ context.Context, d time.Duration) error {
	c.now += d
	return nil
}

type fakeRecord struct{ events []record.Event }

func (r *fakeRecord) Event(e record.Event)   { r.events = append(r.events, e) }
func (r *fakeRecord) Attempt(record.Attempt) {}

func soaking(t *testing.T, seed uint64, set map[string]string) (*World, *fakeRecord) {
	t.Helper()
	params, err := soak().Fill(set)
	if err != nil {
		t.Fatal(err)
	}
	params[RecoverWithin.Key] = "0s" // these worlds have no cluster
	recorder := &fakeRecord{}
	return &World{Params: params, Clock: &fakeClock{}, Recorder: recorder, Nodes: []string{"node-1", "node-2", "node-3"},
		Random: rand.New(rand.NewPCG(seed, 1)), Prober: &fakeProber{}}, recorder
}

func TestSeedDeterminesChurn(t *testing.T) {
	times := func(seed uint64) (all []time.Duration) {
		w, _ := soaking(t, seed, map[string]string{"rolloutsPerHour": "10", "restartsPerHour": "2", "scalesPerHour": "1"})
		for _, c := range w.planChurn(24*time.Hour, &endpointRing{size: 4}) {
			all = append(all, c.at)
		}
		return all
	}
	one := times(1)
	if len(one) != 24*13 || !slices.IsSorted(one) || one[len(one)-1] >= 24*time.Hour {
		t.Errorf("24 hours of 13 an hour are %d disturbances, the last at %s, in order: %v", len(one), one[len(one)-1], slices.IsSorted(one))
	}
	if !slices.Equal(one, times(1)) {
		t.Error("the same seed planned two different days")
	}
	if slices.Equal(one, times(2)) {
		t.Error("two seeds planned the same day")
	}
}

// Each kind of churn is planned as often as its parameter, and docs/soak.md has all of them with their defaults.
func TestEachKindOfChurnHasItsRate(t *testing.T) {
	page, err := os.ReadFile("../docs/soak.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range churnKinds {
		if row := fmt.Sprintf("| `%s` | %s |", kind.rate.Key, kind.rate.Default); !strings.Contains(string(page), row) {
			t.Errorf("docs/soak.md has no row that begins with %q", row)
		}
		set := map[string]string{keepGoing.Key: "on"}
		for _, other := range churnKinds {
			set[other.rate.Key] = "0"
		}
		set[kind.rate.Key] = "3"
		w, _ := soaking(t, 1, set)
		planned := w.planChurn(2*time.Hour, &endpointRing{size: 4})
		for i, d := range planned {
			if want := fmt.Sprintf("%s %d of 6", kind.name, i+1); d.name != want {
				t.Errorf("%s=3 plans %q, want %q", kind.rate.Key, d.name, want)
			}
			if begin := time.Duration(i) * 20 * time.Minute; d.at < begin || d.at >= begin+20*time.Minute {
				t.Errorf("%s=3 plans %s at %s, outside of its third of an hour", kind.rate.Key, d.name, d.at)
			}
		}
		if len(planned) != 6 {
			t.Errorf("%s=3 plans %d disturbances in two hours", kind.rate.Key, len(planned))
		}
	}
}

// Each enabled kind of churn happens in a soak of any length. A soak without churn is refused.
func TestShortSoakHasChurn(t *testing.T) {
	w, _ := soaking(t, 1, map[string]string{"for": "1m"})
	var names []string
	for _, d := range w.planChurn(time.Minute, &endpointRing{size: 4}) {
		names = append(names, d.name)
	}
	slices.Sort(names)
	if want := []string{"restart of a proxy 1 of 1", "rollout 1 of 1", "scale out and in 1 of 1"}; !slices.Equal(names, want) {
		t.Errorf("a minute has %q, want %q", names, want)
	}
	if text, want := w.Params.churnText(time.Minute), "1 × rollout, 1 × restart of a proxy, 1 × scale out and in"; text != want {
		t.Errorf("the text is %q, want %q", text, want)
	}
	if _, err := soak().Fill(map[string]string{"rolloutsPerHour": "0", "restartsPerHour": "0", "scalesPerHour": "0"}); err == nil ||
		!strings.Contains(err.Error(), "all rates of churn are 0") {
		t.Errorf("a soak without churn: %v", err)
	}
	if _, err := soak().Fill(map[string]string{"nodeLossesPerHour": "1"}); err == nil || !strings.Contains(err.Error(), "give keepGoing=on too") {
		t.Errorf("a soak that its own unavoidable loss would end: %v", err)
	}
}

// Attempts near disturbances are not thinned, and their space in the record is planned, up to that of the whole soak.
func TestEachKindOfChurnHasItsRoom(t *testing.T) {
	room := func(set map[string]string) float64 {
		w, _ := soaking(t, 1, set)
		return w.Params.Room(100)
	}
	without := room(nil)
	for _, kind := range churnKinds[3:] {
		if kind.rate.Key == nodeLossRate.Key {
			continue // it needs keepGoing, which has the room of a complete record
		}
		if more := room(map[string]string{kind.rate.Key: "5"}); more <= without {
			t.Errorf("with %s=5 the record needs %.0f bytes, and %.0f without", kind.rate.Key, more, without)
		}
	}
	if most, many := room(map[string]string{RecordMode.Key: "all"}), room(map[string]string{"burstsPerHour": "3600"}); many > 1.5*most {
		t.Errorf("a burst each second needs %.0f bytes, a complete record %.0f", many, most)
	}
}

// Only the kinds of churn that need them require pods with a readiness gate, or the replay control plane.
func TestChurnNeedsCapabilities(t *testing.T) {
	for _, c := range []struct {
		set           map[string]string
		gates, replay bool
	}{
		{nil, false, false},
		{map[string]string{flapRate.Key: "1"}, true, false},
		{map[string]string{blipRate.Key: "1"}, false, true},
	} {
		w, _ := soaking(t, 1, c.set)
		if gates, replay := soak().setup(w.Params).Gated, slices.Contains(soak().Needs(w.Params), ControllableAPI); gates != c.gates || replay != c.replay {
			t.Errorf("%v: gates %t, replay %t; want %t, %t", c.set, gates, replay, c.gates, c.replay)
		}
	}
}

// A soak without effective churn is an error, and a soak ends at the first loss.
func TestSoakNeedsChurn(t *testing.T) {
	plan := func(effects string) (planned []disturbance) {
		for i, c := range effects {
			planned = append(planned, disturbance{time.Duration(i) * time.Minute, "rollout", func(context.Context) error {
				if c == 'x' {
					return errors.New("the pods stayed")
				}
				return nil
			}})
		}
		return planned
	}
	t.Run("95 percent is enough", func(t *testing.T) {
		w, recorder := soaking(t, 1, nil)
		if err := w.runChurn(t.Context(), time.Hour, plan(strings.Repeat(".", 19)+"x")); err != nil {
			t.Error(err)
		}
		if now := w.Clock.Now(); now != time.Hour {
			t.Errorf("an hour of soak took %s", now)
		}
		missed := 0
		for _, e := range recorder.events {
			if e.Body == (record.Step{State: record.StepMissed}) && strings.Contains(e.Text, "the pods stayed") {
				missed++
			}
		}
		if missed != 1 {
			t.Errorf("%d events report the disturbance without effect, want 1", missed)
		}
	})
	t.Run("less is invalid", func(t *testing.T) {
		w, recorder := soaking(t, 1, nil)
		if err := w.runChurn(t.Context(), time.Hour, plan(strings.Repeat(".", 18)+"xx")); err == nil {
			t.Error("a soak with 18 of 20 disturbances was accepted")
		}
		if last := recorder.events[len(recorder.events)-1]; last.Kind() != record.KindStep || last.Body.(record.Step).State != record.StepFailed {
			t.Errorf("the record ends with %+v, which does not affect the verdict", last)
		}
	})
	t.Run("the first loss ends it", func(t *testing.T) {
		w, _ := soaking(t, 1, nil)
		w.Prober.(*fakeProber).failures = func() int { return int(w.Clock.Now() / (5 * time.Minute)) }
		if err := w.runChurn(t.Context(), time.Hour, plan(strings.Repeat(".", 20))); err != nil {
			t.Error(err)
		}
		if now := w.Clock.Now(); now != 5*time.Minute {
			t.Errorf("the loss was after 5 minutes, the soak continued until %s", now)
		}
	})
	t.Run("a proxy that does not follow ends it at a checkpoint", func(t *testing.T) {
		w, _ := soaking(t, 1, nil)
		w.run.unrecovered = true
		if err := w.runChurn(t.Context(), time.Hour, plan(strings.Repeat(".", 20))); err != nil || w.Clock.Now() != 0 {
			t.Errorf("the soak continued until %s (%v)", w.Clock.Now(), err)
		}
	})
	t.Run("the first loss ends it within a minute, with nothing planned until then", func(t *testing.T) {
		w, _ := soaking(t, 1, nil)
		w.Prober.(*fakeProber).failures = func() int { return int(w.Clock.Now() / (5*time.Minute + 20*time.Second)) }
		if err := w.runChurn(t.Context(), 24*time.Hour, plan(".")); err != nil {
			t.Error(err)
		}
		if now := w.Clock.Now(); now != 6*time.Minute {
			t.Errorf("the loss was after 5 minutes and 20 seconds, the soak continued until %s", now)
		}
	})
	t.Run("a loss stays seen, whatever had no effect", func(t *testing.T) {
		w, _ := soaking(t, 1, nil)
		w.Prober.(*fakeProber).failures = func() int { return int(w.Clock.Now() / (2 * time.Minute)) }
		if err := w.runChurn(t.Context(), time.Hour, plan("xxx")); err != nil {
			t.Errorf("a soak with a loss is invalid: %v", err)
		}
	})
	t.Run("nothing at all is invalid", func(t *testing.T) {
		w, _ := soaking(t, 1, nil)
		if err := w.runChurn(t.Context(), time.Hour, nil); err == nil {
			t.Error("a soak of an hour without churn was accepted")
		}
	})
	t.Run("unless it shall go on", func(t *testing.T) {
		w, _ := soaking(t, 1, map[string]string{"keepGoing": "on"})
		w.Prober.(*fakeProber).failures = func() int { return 1 }
		if err := w.runChurn(t.Context(), time.Hour, plan("...")); err != nil || w.Clock.Now() != time.Hour {
			t.Errorf("it ended at %s: %v", w.Clock.Now(), err)
		}
	})
}

// Every hour of a soak is reported once with its progress, also when a disturbance takes longer than an hour.
func TestSoakReportsEachHour(t *testing.T) {
	w, recorder := soaking(t, 1, nil)
	long := func(d time.Duration) func(context.Context) error {
		return func(ctx context.Context) error { return w.Clock.Sleep(ctx, d) }
	}
	planned := []disturbance{{30 * time.Minute, "short", long(time.Minute)}, {100 * time.Minute, "long", long(2 * time.Hour)}}
	if err := w.runChurn(t.Context(), 5*time.Hour, planned); err != nil {
		t.Fatal(err)
	}
	var told []string
	for _, e := range recorder.events {
		if e.Object == Checkpoint {
			told = append(told, e.Text)
		}
	}
	want := []string{
		"checkpoint 1h0m0s of 5h0m0s: 1 of 1 planned disturbances had their effect, 0 attempts failed",
		"checkpoint 2h0m0s of 5h0m0s: 2 of 2 planned disturbances had their effect, 0 attempts failed",
		"checkpoint 3h0m0s of 5h0m0s: 2 of 2 planned disturbances had their effect, 0 attempts failed",
		"checkpoint 4h0m0s of 5h0m0s: 2 of 2 planned disturbances had their effect, 0 attempts failed",
		"checkpoint 5h0m0s of 5h0m0s: 2 of 2 planned disturbances had their effect, 0 attempts failed",
	}
	if !slices.Equal(told, want) {
		t.Errorf("reported:\n%s\nwant:\n%s", strings.Join(told, "\n"), strings.Join(want, "\n"))
	}
}
