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

// A change of a pod counts when a complete pass that took it up has ended, with all the time since.
func TestTimeToTheKernel(t *testing.T) {
	m := New()
	at := func(seconds int) time.Time { return m.started.Add(time.Duration(seconds) * time.Second) }
	got := func() string {
		const name = "kubeproxy_network_programming_duration_seconds"
		return scrape(m, name+"_count") + " changes, " + scrape(m, name+"_sum") + " s"
	}
	m.EndpointsChanged(at(1), at(-100)) // older than the process
	m.EndpointsChanged(at(1), time.Time{})
	m.EndpointsChanged(at(2), at(1))
	m.Taken()
	m.EndpointsChanged(at(3), at(2)) // during the pass
	if m.Pass(false, time.Second, false, at(4)); got() != "0 changes, 0 s" {
		t.Errorf("after a pass that failed: %s", got())
	}
	if m.Pass(false, time.Second, true, at(5)); got() != "1 changes, 4 s" {
		t.Errorf("after it succeeded: %s, want the one that it took up", got())
	}
	m.Taken()
	if m.Pass(false, time.Second, true, at(6)); got() != "2 changes, 8 s" {
		t.Errorf("after the next: %s", got())
	}
}

// While no pass is complete, what is remembered of changes does not grow for ever.
func TestChangesThatWaitAreBounded(t *testing.T) {
	m := New()
	for range 3 * mostChanges {
		m.EndpointsChanged(m.started, m.started)
		m.Taken()
		m.Pass(false, time.Millisecond, false, m.started)
	}
	if n := len(m.takenChanges); n != mostChanges {
		t.Errorf("%d changes are remembered, want %d", n, mostChanges)
	}
	m.Pass(false, time.Millisecond, true, m.started)
	if got := scrape(m, "kubeproxy_network_programming_duration_seconds_count"); got != "10000" || len(m.takenChanges) > 0 {
		t.Errorf("%s changes are counted in the end, %d remembered", got, len(m.takenChanges))
	}
}
