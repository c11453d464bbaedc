package reports

import (
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/record"
)

// done records something that was done to a Service.
func done(s *lab, at time.Duration, service, state, fields string) {
	s.event(at, record.KindService, "", service, "the Service "+service+" was "+state+": "+fields, "service", service, "state", state, "fields", fields)
}

// What a proxy loses while it follows a change of its Service is explained by the change; what a Service that is away cannot serve,
// by its deletion, however long ago.
func TestWhatWasDoneToTheServiceExplainsWhatFollows(t *testing.T) {
	for name, c := range map[string]struct {
		put   func(s *lab)
		event string
	}{
		"changed":  {func(s *lab) { done(s, lossAt-300*time.Millisecond, "default/web", "changed", "externalTrafficPolicy") }, "service changed"},
		"deleted":  {func(s *lab) { done(s, lossAt-20*time.Second, "default/web", "deleted", "") }, "service deleted"},
		"came too": {func(s *lab) { done(s, lossAt-time.Second, "default/web", "created", "") }, "service created"},
	} {
		s := dropOnNode2(false)
		c.put(s)
		if got := causeOf(t, s); got.Event != c.event || !strings.HasPrefix(got.Text, "the Service default/web was ") {
			t.Errorf("%s: %+v, want %s", name, got, c.event)
		}
	}
}

// The red twins: another Service, one that is back for long, and a change that came later or long before explain nothing.
func TestWhatWasDoneElsewhereOrAtAnotherTimeExplainsNothing(t *testing.T) {
	for name, put := range map[string]func(s *lab){
		"another Service": func(s *lab) { done(s, lossAt-300*time.Millisecond, "default/other", "changed", "ports") },
		"back for long": func(s *lab) {
			done(s, lossAt-20*time.Second, "default/web", "deleted", "")
			done(s, lossAt-12*time.Second, "default/web", "created", "")
		},
		"later":       func(s *lab) { done(s, lossAt+time.Second, "default/web", "changed", "ports") },
		"long before": func(s *lab) { done(s, lossAt-15*time.Second, "default/web", "changed", "ports") },
	} {
		s := dropOnNode2(false)
		put(s)
		if got := causeOf(t, s); strings.HasPrefix(got.Event, "service ") {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
