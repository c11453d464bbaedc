package scenarios

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hitless/hitless/record"
)

// answering is a client whose requests over a node are answered as a list says, and then as its last entry.
type answering struct {
	answers map[string][]bool
}

func (a *answering) Reach(context.Context, string, string) error { return nil }

func (a *answering) Hold(context.Context, string) (io.Closer, error) { return nil, nil }

func (a *answering) Over(_ context.Context, node string, _ record.Family, _ *corev1.Service) error {
	all := a.answers[node]
	if len(all) > 1 {
		a.answers[node] = all[1:]
	}
	if all[0] {
		return nil
	}
	return errors.New("no answer")
}

// One request that fails on its way does not show that a proxy followed a removal. Requests that fail in turn do.
func TestASingleFailedRequestShowsNoRemoval(t *testing.T) {
	for name, c := range map[string]struct {
		answers  []bool
		followed bool
	}{
		"it answers, but for one":    {[]bool{true, false, true}, false},
		"it answers, but for two":    {[]bool{true, false, false, true}, false},
		"it answers no more":         {[]bool{true, true, false}, true},
		"it never answered":          {[]bool{false}, true},
		"it answers all the time":    {[]bool{true}, false},
		"it stops after one is lost": {[]bool{false, true, false}, true},
	} {
		w := &World{Params: Params{RecoverWithin.Key: "5s"}, Site: NewSite(&answering{map[string][]bool{"node-1": c.answers}}, nil), Clock: &fakeClock{}}
		told := 0
		change := endpointChange{w, record.RecoveryRemoved, 0, func(string, record.Recovery, string) { told++ }}
		followed, err := change.followedBy(t.Context(), []string{"node-1"}, &corev1.Service{})
		if err != nil || slices.Contains(followed, "node-1") != c.followed || told != 1 {
			t.Errorf("%s: followed by %q, told %d times, %v", name, followed, told, err)
		}
		if limit := 10 * time.Second; w.Clock.Now() > limit {
			t.Errorf("%s: it took %v", name, w.Clock.Now())
		}
	}
}
