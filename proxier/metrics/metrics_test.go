package metrics

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func scrape(m *Metrics, name string) string {
	w := httptest.NewRecorder()
	m.Handler(false).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(w.Body.String()) {
		if value, is := strings.CutPrefix(line, name+" "); is {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// A pod change is observed at the end of a complete pass that took it.
func TestProgrammingDuration(t *testing.T) {
	m := New()
	at := func(seconds int) time.Time { return m.started.Add(time.Duration(seconds) * time.Second) }
	got := func() string {
		const name = "kubeproxy_network_programming_duration_seconds"
		return scrape(m, name+"_count") + " changes, " + scrape(m, name+"_sum") + " s"
	}
	m.EndpointsChanged(at(1), at(-100)) // before the start of the process
	m.EndpointsChanged(at(1), time.Time{})
	m.EndpointsChanged(at(2), at(1))
	m.ChangesTaken()
	m.EndpointsChanged(at(3), at(2)) // during the pass
	if m.ObservePass(false, time.Second, false, at(4)); got() != "0 changes, 0 s" {
		t.Errorf("after a failed pass: %s", got())
	}
	if m.ObservePass(false, time.Second, true, at(5)); got() != "1 changes, 4 s" {
		t.Errorf("after a complete pass: %s, want the taken change", got())
	}
	m.ChangesTaken()
	if m.ObservePass(false, time.Second, true, at(6)); got() != "2 changes, 8 s" {
		t.Errorf("after the next: %s", got())
	}
}

// The remembered changes are bounded while no pass is complete.
func TestRememberedChangesAreBounded(t *testing.T) {
	m := New()
	for range 3 * maxChanges {
		m.EndpointsChanged(m.started, m.started)
		m.ChangesTaken()
		m.ObservePass(false, time.Millisecond, false, m.started)
	}
	if n := len(m.takenChanges); n != maxChanges {
		t.Errorf("%d changes are remembered, want %d", n, maxChanges)
	}
	m.ObservePass(false, time.Millisecond, true, m.started)
	if got := scrape(m, "kubeproxy_network_programming_duration_seconds_count"); got != "10000" || len(m.takenChanges) > 0 {
		t.Errorf("%s changes counted at the end, %d remembered", got, len(m.takenChanges))
	}
}
