package clusterwatch

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/cluster"
	"github.com/hitless/hitless/probes"
	"github.com/hitless/hitless/record"
)

// exporting starts an exporter with one target, and returns a function that scrapes it.
func exporting(t *testing.T) (x *exporter, scrape func() string) {
	t.Helper()
	said := ""
	x, err := startExporter("127.0.0.1:0", func(text string) { said = text })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x.close)
	x.begin(target{External: cluster.External{Service: "shop/web", Port: 80, Host: "192.0.2.1", Number: 80}, lane: probes.Lane{ID: 1, Rate: 10}})
	_, url, _ := strings.Cut(said, " at ")
	return x, func() string {
		t.Helper()
		answer, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
}

// scraped is the text of an exporter that has seen attempts.
func scraped(t *testing.T) string {
	t.Helper()
	x, scrape := exporting(t)
	x.attempt(&record.Attempt{Lane: 1, Class: record.OK})
	return scrape()
}

// Outcomes count once each. A gap is from the last good attempt before to the first after, in whatever order their outcomes are known.
func TestExportedCountsAndGaps(t *testing.T) {
	x, scrape := exporting(t)
	failures := 0
	x.onFailure(func() { failures++ })
	classes := []record.Class{record.OK, record.OK, record.ConnectTimeout, record.Refused, record.OK, record.Probe, record.OK, record.Delayed}
	order := []int{0, 1, 3, 4, 5, 6, 2, 7} // the outcome of number 2 is known late
	say := func(labels string) string {
		return `{address="192.0.2.1:80",` + labels + `port="80",service="shop/web"}`
	}
	for i, k := range order {
		at := time.Duration(k) * 100 * time.Millisecond
		x.attempt(&record.Attempt{Lane: 1, Seq: uint64(k), Class: classes[k], Intended: at, Start: at + 3*time.Millisecond})
		if i == 3 {
			x.attempt(&record.Attempt{Lane: 2, Class: record.Refused}) // of a lane that is not measured
		}
	}
	text := scrape()
	for _, want := range []string{
		"hitless_attempts_total" + say(`class="ok",`) + " 4", "hitless_attempts_total" + say(`class="delayed",`) + " 1",
		"hitless_attempts_total" + say(`class="probe",`) + " 1", "hitless_dropped_total" + say(`class="refused",`) + " 1",
		"hitless_dropped_total" + say(`class="connect-timeout",`) + " 1", "hitless_dropped_total" + say(`class="reset",`) + " 0",
		"hitless_worst_gap_seconds" + say("") + " 0.3", "hitless_outage_seconds" + say("") + " 0.1",
		"hitless_detection_floor_seconds" + say("") + " 0.2", "hitless_lateness_seconds_count" + say("") + " 8", "hitless_targets 1",
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("the text lacks %s:\n%s", want, text)
		}
	}
	if strings.Contains(text, `hitless_dropped_total`+say(`class="delayed",`)) || failures != 3 {
		t.Errorf("%d failures, and delayed attempts are dropped ones:\n%s", failures, text)
	}
	x.end(target{lane: probes.Lane{ID: 1}})
	if text := scrape(); !strings.Contains(text, "hitless_targets 0\n") || strings.Contains(text, "hitless_outage_seconds{") || !strings.Contains(text, `class="refused",`) {
		t.Errorf("after the end of the lane:\n%s", text)
	}
}

// The gap of a lane that joins a watch and has no good attempt yet is from its begin, whatever its first attempt was.
func TestGapFromTheBegin(t *testing.T) {
	const from = time.Hour
	for _, first := range []record.Class{record.Probe, record.Refused} {
		x, err := startExporter("", nil)
		if err != nil {
			t.Fatal(err)
		}
		x.begin(target{External: cluster.External{Service: "shop/web", Port: 80, Host: "192.0.2.1", Number: 80}, lane: probes.Lane{ID: 1, Rate: 10}, from: from})
		for k, class := range []record.Class{first, record.Refused} {
			x.attempt(&record.Attempt{Lane: 1, Seq: uint64(k), Class: class, Intended: from + time.Duration(k)*100*time.Millisecond})
		}
		e := x.lanes[1]
		if e.worst != 100*time.Millisecond || e.lasting(from+time.Second) != time.Second {
			t.Errorf("after a first attempt of class %s, the worst gap is %v and the outage lasts %v after a second", first, e.worst, e.lasting(from+time.Second))
		}
	}
}
