package analysis

import (
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/record/recordtest"
)

// done records something that was done to a Service.
func done(s *recordtest.Lab, at time.Duration, service, state, fields string) {
	s.Event(at, record.KindService, "", service, "the Service "+service+" was "+state+": "+fields, "service", service, "state", state, "fields", fields)
}

// What a proxy loses while it follows a change of its Service is explained by the change; what a Service that is away cannot serve,
// by its deletion, however long ago.
func TestWhatWasDoneToTheServiceExplainsWhatFollows(t *testing.T) {
	for name, c := range map[string]struct {
		Write func(s *recordtest.Lab)
		event string
	}{
		"changed": {func(s *recordtest.Lab) {
			done(s, recordtest.LossAt-300*time.Millisecond, "default/web", "changed", "externalTrafficPolicy")
		}, "service changed"},
		"deleted":  {func(s *recordtest.Lab) { done(s, recordtest.LossAt-20*time.Second, "default/web", "deleted", "") }, "service deleted"},
		"came too": {func(s *recordtest.Lab) { done(s, recordtest.LossAt-time.Second, "default/web", "created", "") }, "service created"},
	} {
		s := recordtest.DropOnNode2(false)
		c.Write(s)
		if got := causeOf(t, s); got.Event != c.event || !strings.HasPrefix(got.Text, "the Service default/web was ") {
			t.Errorf("%s: %+v, want %s", name, got, c.event)
		}
	}
}

// The red twins: another Service, one that is back for long, and a change that came later or long before explain nothing.
func TestWhatWasDoneElsewhereOrAtAnotherTimeExplainsNothing(t *testing.T) {
	for name, put := range map[string]func(s *recordtest.Lab){
		"another Service": func(s *recordtest.Lab) {
			done(s, recordtest.LossAt-300*time.Millisecond, "default/other", "changed", "ports")
		},
		"back for long": func(s *recordtest.Lab) {
			done(s, recordtest.LossAt-20*time.Second, "default/web", "deleted", "")
			done(s, recordtest.LossAt-12*time.Second, "default/web", "created", "")
		},
		"later":       func(s *recordtest.Lab) { done(s, recordtest.LossAt+time.Second, "default/web", "changed", "ports") },
		"long before": func(s *recordtest.Lab) { done(s, recordtest.LossAt-15*time.Second, "default/web", "changed", "ports") },
	} {
		s := recordtest.DropOnNode2(false)
		put(s)
		if got := causeOf(t, s); strings.HasPrefix(got.Event, "service ") {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
