//go:build lab

package clusterwatch

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/testfiles"
)

// promServer is a running Prometheus with the shipped rules.
type promServer struct {
	t   *testing.T
	url string
}

// startPrometheus scrapes an address each second until the test ends. It needs the Debian package prometheus, and no root.
func startPrometheus(t *testing.T, scraped string) promServer {
	t.Helper()
	rules, err := filepath.Abs(filepath.Join(shipped, "alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	config := fmt.Sprintf("global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [%q]\nscrape_configs:\n- job_name: hitless\n  static_configs: [{targets: [%q]}]\n", rules, scraped)
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	c := exec.Command("prometheus", "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address=127.0.0.1:0")
	c.Dir = dir
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	c.Stdout, c.Stderr = log, log
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = c.Wait() }() // the log has the reason
	t.Cleanup(func() { _ = c.Process.Kill(); <-ended; _ = log.Close() })
	return promServer{t, "http://" + listensOn(t, log.Name(), ended)}
}

// listensOn waits until the log of Prometheus names the address that the kernel gave it.
func listensOn(t *testing.T, log string, ended <-chan struct{}) string {
	t.Helper()
	named := regexp.MustCompile(`"Listening on" address=(\S+)`)
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		text, err := os.ReadFile(log)
		if m := named.FindSubmatch(text); m != nil {
			return string(m[1])
		}
		select {
		case <-ended:
			t.Fatalf("Prometheus has ended: %s", text)
		default:
		}
		if time.Now().After(end) {
			t.Fatalf("after %v Prometheus does not say where it listens (%v):\n%s", patience, err, text)
		}
	}
}

// query returns the values of an instant query by one label; nil while Prometheus does not answer.
func (p promServer) query(q, label string) map[string]float64 {
	p.t.Helper()
	answer, err := http.Get(p.url + "/api/v1/query?query=" + url.QueryEscape(q))
	if err != nil {
		return nil
	}
	defer answer.Body.Close()
	var body struct {
		Error string
		Data  struct {
			Result []struct {
				Metric map[string]string
				Value  [2]any
			}
		}
	}
	if err := json.NewDecoder(answer.Body).Decode(&body); err != nil {
		return nil
	}
	if body.Error != "" {
		p.t.Fatalf("%s: %s", q, body.Error)
	}
	all := map[string]float64{}
	for _, r := range body.Data.Result {
		all[r.Metric[label]], err = strconv.ParseFloat(r.Value[1].(string), 64)
		if err != nil {
			p.t.Fatal(err)
		}
	}
	return all
}

// Prometheus' own counts of a watch are those of its report, and the shipped rules fire for its loss. promtool accepts the rules.
func TestPrometheusCountsAsTheReport(t *testing.T) {
	for _, program := range []string{"prometheus", "promtool"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatalf("%v: install the Debian package prometheus, or run `make lab-test`, which fetches it", err)
		}
	}
	if out, err := exec.Command("promtool", "check", "rules", filepath.Join(shipped, "alerts.yaml")).CombinedOutput(); err != nil {
		t.Errorf("promtool check rules: %v\n%s", err, out)
	}
	s := newStand(t)
	a, b := testfiles.Loopback(t), testfiles.Loopback(t)
	l := listen(t, a)
	listen(t, b)
	s.service("web", nil, a)
	s.service("other", nil, b)
	o := s.options()
	o.Listen = "127.0.0.1:0"
	r := s.start(o)
	r.mu.Lock()
	_, rest, found := strings.Cut(strings.Join(r.said, "\n"), "metrics at http://")
	r.mu.Unlock()
	scraped, _, _ := strings.Cut(rest, "/metrics")
	if !found {
		t.Fatalf("the watch does not say where its metrics are: %v", r.err)
	}
	p := startPrometheus(t, scraped)
	r.until("Prometheus scrapes the watch", func() bool { return p.query("hitless_targets", "job")["hitless"] == 2 })
	l.close()
	r.until("the alert of the loss", func() bool {
		return p.query(`ALERTS{alertname="HitlessConnectionsDropped",alertstate="firing"}`, "service")["shop/web"] == 1
	})
	listen(t, a)
	r.goesOn(20)
	s.remove("Service", "web")
	s.remove("Service", "other")
	r.until("no target", func() bool { v, has := p.query("hitless_targets", "job")["hitless"]; return has && v == 0 })
	late := float64(time.Now().UnixMilli())/1e3 + 2 // probes obey within a second
	r.until("a scrape after the last attempt", func() bool { return p.query("max(timestamp(hitless_targets))", "job")[""] > late })
	before := p.query("sum by (class) (hitless_attempts_total)", "class")
	dropped := p.query("sum by (service) (hitless_dropped_total)", "service")
	gap := p.query("hitless_worst_gap_seconds", "service")
	report := r.report(analysis.Fail)
	for class, n := range report.Totals.ByClass {
		if before[class] != float64(n) {
			t.Errorf("Prometheus counts %v attempts of %s, the report %d", before[class], class, n)
		}
	}
	if dropped["shop/web"] != float64(report.Totals.Dropped) || dropped["shop/web"] == 0 || dropped["shop/other"] != 0 {
		t.Errorf("Prometheus counts %v dropped, the report %d", dropped, report.Totals.Dropped)
	}
	if ms := report.WorstGapMs(); gap["shop/web"]*1e3 < ms-60 || gap["shop/web"]*1e3 > ms+60 { // an interval of the lane, and the times to connect
		t.Errorf("the worst gap is %v s by Prometheus, and %.1f ms by the report", gap["shop/web"], ms)
	}
	for _, q := range queries(t) {
		if !strings.Contains(q, "label_values") {
			q = strings.NewReplacer("$__rate_interval", "1m", "$__range", "1h", "$service", ".*").Replace(q)
			if p.query(q, "service") == nil { // Prometheus itself parses each query
				t.Errorf("Prometheus does not answer %s", q)
			}
		}
	}
}
