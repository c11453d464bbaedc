package scenarios

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios/timeline"
)

// fakeJournal stores the timeline of a run.
type fakeJournal struct{ strings.Builder }

func (j *fakeJournal) Journal(text string) { j.WriteString(text) }

// fakeScenarioRun runs a scenario on simulated proxies and API server. It returns the actions on them, and the timeline.
func fakeScenarioRun(t *testing.T, s Scenario, set map[string]string) (done []string, text string, events []record.Event) {
	t.Helper()
	params, err := s.Fill(set)
	if err != nil {
		t.Fatal(err)
	}
	var journal fakeJournal
	proxies := &changing{runs: map[string]string{"node-1": "old", "node-2": "old"}}
	server := &fakeAPI{watches: 6}
	recorder := &fakeRecord{}
	w := &World{Nodes: []string{"node-1", "node-2"}, Site: siteOf(proxies, server).OfferJournal(&journal), Recorder: recorder, Clock: &fakeClock{now: time.Minute},
		Params: params, Rate: 25, Seed: 9, run: runState{began: time.Minute, main: &workload{name: "web"}}}
	w.writeHead(s)
	if err := s.Run(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	w.write(timeline.Step{Verb: timeline.End})
	return append(proxies.done, server.done...), journal.String(), recorder.events
}

// The replay of a run's timeline has the same actions at the same times, and writes the same timeline.
func TestRunIsReplayedFromTimeline(t *testing.T) {
	blackouts := func(ctx context.Context, w *World) error {
		return errors.Join(w.apiAway(ctx, time.Minute), w.relist(ctx), w.performVerb(ctx, "api delay", "node-2", "by", "250ms"), w.performVerb(ctx, "api cut", "node-1"))
	}
	for name, c := range map[string]struct {
		scenario Scenario
		set      map[string]string
		want     string // in the timeline
	}{
		"restart": {restart(), map[string]string{"signal": "KILL"}, "+7s proxy kill node-2\n+9s proxy start node-2\n+14s end\n"},
		"upgrade": {upgrade(), map[string]string{"to": "new", "back": "on", "cleanup": "on"}, "+14s proxy cleanup node-1\n+14s proxy change node-1 to=subject\n"},
		"api":     {Scenario{Name: "blackouts", Run: blackouts}, nil, "+1m0s api back all\n+1m0s expect watching all within=3m0s\n+1m0s api expire all\n"},
	} {
		t.Run(name, func(t *testing.T) {
			done, text, _ := fakeScenarioRun(t, c.scenario, c.set)
			if !strings.Contains(text, c.want) || !strings.Contains(text, "nodes 2\nrate 25\nseed 9\n") {
				t.Fatalf("the timeline is\n%s\nwant in it\n%s", text, c.want)
			}
			parsed, err := timeline.Parse("f", []byte(text))
			if err != nil {
				t.Fatal(err)
			}
			set := map[string]string{}
			for _, s := range parsed.Set {
				set[s.Key] = s.Value
			}
			again, textAgain, _ := fakeScenarioRun(t, Replay(parsed), set)
			if !slices.Equal(again, done) {
				t.Errorf("replayed, %q was done, want %q", again, done)
			}
			if textAgain != text {
				t.Errorf("replayed, the timeline is\n%s\nwant\n%s", textAgain, text)
			}
		})
	}
}

// The head has the settings of the run that differ from a timeline's defaults, and none of the subject.
func TestTimelineHead(t *testing.T) {
	params, err := flap().Fill(map[string]string{"replicas": "4", "terminatingFallback": "off", "flaps": "7"})
	if err != nil {
		t.Fatal(err)
	}
	var journal fakeJournal
	w := &World{Params: params, Nodes: []string{"node-1"}, Rate: 10, Seed: 3, Site: siteOf(nil, nil).OfferJournal(&journal), run: webRun()}
	w.writeHead(flap())
	text := journal.String()
	want := "hitless timeline 1\nnodes 1\nrate 10\nseed 3\nset gated=on\nset readinessPeriod=10s\nset replicas=4\nset trafficPolicy=Cluster\n" +
		"lane tcp-long connections=24 rate=12\n"
	if text != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
	parsed, err := timeline.Parse("f", []byte(text+"+1s lane stop tcp-long\n+2s end\n"))
	if err != nil {
		t.Fatal(err)
	}
	lanes, own := w.timelineLanes(parsed), flap().Lanes(w)
	if len(lanes) != 1 || lanes[0].Connections != own[0].Connections || lanes[0].Rate != own[0].Rate || !lanes[0].Partial || lanes[0].Protocol != own[0].Protocol {
		t.Errorf("the timeline starts %+v, the scenario %+v", lanes, own)
	}
}

// An unmet `expect` ends the run; an unmet `await` is only recorded.
func TestExpectAndAwait(t *testing.T) {
	for verb, wantErr := range map[string]bool{"expect watching": true, "await watching": false} {
		text := "hitless timeline 1\nnodes 1\n+0s api cut all\n+1s " + verb + " all within=5s\n+1m end\n"
		parsed, err := timeline.Parse("f", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		clock, recorder := &fakeClock{}, &fakeRecord{}
		w := &World{Nodes: []string{"node-1"}, Site: siteOf(nil, &fakeAPI{watches: 6, hopeless: true}), Recorder: recorder, Clock: clock, run: webRun()}
		// This API server loses watches only when they are cut, and gets no new ones.
		err = Replay(parsed).Run(t.Context(), w)
		told := slices.ContainsFunc(recorder.events, func(e record.Event) bool { return strings.Contains(e.Text, "did not come about") })
		if wantErr != (err != nil) || wantErr == told || err != nil && !strings.HasPrefix(err.Error(), "line 4: ") {
			t.Errorf("%s gave %v, recorded: %t", verb, err, told)
		}
		if !wantErr && clock.Now() != time.Minute {
			t.Errorf("the replay ended at %s, its end is at 1m", clock.Now())
		}
	}
}
