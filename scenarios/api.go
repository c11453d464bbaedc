package scenarios

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hitless/hitless/reports"
)

// ControlPlane does to the proxies' API server what happens to real ones.
type ControlPlane interface {
	// Away keeps the proxies from their API server until back is called: connections end, and no request is answered.
	Away() (back func())
	// Relist ends the proxies' watches and has the next one of each expire (410 Gone), so that they list everything again.
	// It returns the resources whose watches were ended, one for each watch.
	Relist() []string
	// Watching returns the resources that the proxies watch, one for each watch.
	Watching() []string
}

// api takes the API server away from the proxies, and lets them lose their watches. What they have programmed has to go on
// serving, and what changes afterwards has to arrive.
func api() Scenario {
	return Scenario{
		Name:       "api",
		Summary:    "takes the API server away from the proxies, ends and expires their watches, and rolls the Deployment after each",
		ReplayOnly: true,
		Parameters: []Parameter{
			{"away", "5m", "how long the API server is away; 0s for not at all", durationIn(0, 24*time.Hour)},
			{"relists", "3", "how often the watches end and expire", numberIn(0, 1000)},
			lanesParameter,
			{"replicas", "2", "pods of the Deployment; fewer than nodes, or it cannot be rolled", numberIn(1, 100)},
		},
		Run: func(ctx context.Context, w *World) error {
			if away := w.Params.duration("away"); away > 0 {
				name := fmt.Sprintf("keep the proxies from the API server for %s", away)
				if err := w.Step(ctx, name, "", func(ctx context.Context) error { return w.apiAway(ctx, away) }); err != nil {
					return err
				}
				if err := w.Step(ctx, "roll after the API server came back", "", func(ctx context.Context) error { return w.roll(ctx, 1) }); err != nil {
					return err
				}
			}
			for i := range w.Params.number("relists") {
				name := fmt.Sprintf("end and expire the watches %d", i+1)
				if err := w.Step(ctx, name, "", w.relist); err != nil {
					return err
				}
				name = fmt.Sprintf("roll after the watches ended %d", i+1)
				if err := w.Step(ctx, name, "", func(ctx context.Context) error { return w.roll(ctx, i+2) }); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// watchesWithin bounds the time until every proxy watches again: clients wait up to half a minute between two tries.
const watchesWithin = 3 * time.Minute

func (w *World) apiAway(ctx context.Context, away time.Duration) error {
	before := len(w.ControlPlane.Watching())
	if before == 0 {
		return errors.New("no proxy watches anything: it would not notice")
	}
	back := w.ControlPlane.Away()
	defer back()
	w.tellAPI("the API server is away from the proxies")
	if err := w.Clock.Sleep(ctx, away); err != nil {
		return err
	}
	if n := len(w.ControlPlane.Watching()); n > 0 {
		return fmt.Errorf("%d watches of proxies were still open at the end: the API server was not away", n)
	}
	back()
	w.tellAPI("the API server is back")
	return w.watching(ctx, before)
}

func (w *World) relist(ctx context.Context) error {
	ended := w.ControlPlane.Relist()
	if len(ended) == 0 {
		return errors.New("no proxy watches anything: there was nothing to end")
	}
	w.tellAPI("watches of proxies ended and expire: " + strings.Join(ended, " "))
	return w.watching(ctx, len(ended))
}

// watching waits until the proxies have as many watches as they had.
func (w *World) watching(ctx context.Context, before int) error {
	return w.Until(ctx, "the proxies to watch again", watchesWithin, func(context.Context) (bool, string, error) {
		n := len(w.ControlPlane.Watching())
		return n >= before, fmt.Sprintf("%d of %d watches", n, before), nil
	})
}

func (w *World) tellAPI(text string) {
	w.Recorder.Event(reports.Event{At: w.Clock.Now(), Kind: reports.EventLog, Object: "api server", Text: text})
}
