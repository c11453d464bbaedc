package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/hitless/hitless/internal/bench"
)

// The page of the bundled proxier claims no cost, and no factor, that was not measured.
func TestTheProxiersPageHasTheCommittedBenchmark(t *testing.T) {
	rows := benchRows(t)
	holds(t, proxierPage, tableBegin("bench-proxier"), "\n"+bench.Markdown(rows)+"\n"+factors(t, rows)+"\n", tableEnd)
}

// benchRows are the committed rows: each subject at each number of Services, once.
func benchRows(t *testing.T) (rows []bench.Row) {
	t.Helper()
	for _, file := range committed(t, "../../docs/results/bench/*.json") {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var part struct{ Rows []bench.Row }
		if err := json.Unmarshal(data, &part); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		rows = append(rows, part.Rows...)
	}
	slices.SortStableFunc(rows, func(a, b bench.Row) int { return a.Services - b.Services })
	var have, want []string
	for _, r := range rows {
		have = append(have, fmt.Sprintf("%s %s %d", r.Subject, r.MinSync, r.Services))
	}
	for _, services := range []int{100, 1000, 10000} {
		for _, name := range bench.DefaultSubjects {
			s, err := bench.ParseSubject(name)
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, fmt.Sprintf("%s %s %d", s.Spec, cmp.Or(s.MinSync, "default"), services))
		}
	}
	if !slices.Equal(have, want) {
		t.Fatalf("the committed rows are\n%q, want\n%q; `make bench-proxier` makes them", have, want)
	}
	return rows
}

// factors is a table of how many times longer the fastest of kube-proxy's rows took than the bundled proxier.
func factors(t *testing.T, rows []bench.Row) string {
	t.Helper()
	columns := []struct {
		head string
		of   func(bench.Row) float64
	}{
		{"cold start", func(r bench.Row) float64 { return r.ColdStartMs }},
		{"one endpoint", func(r bench.Row) float64 { return r.EndpointChangeMs }},
		{"one Service", func(r bench.Row) float64 { return r.ServiceAddMs }},
		{"rollout of 100", func(r bench.Row) float64 { return r.RolloutMs }},
	}
	head, line := "| the fastest kube-proxy takes, at", "|---"
	for _, c := range columns {
		head, line = head+" | "+c.head, line+"|--:"
	}
	text := head + " |\n" + line + "|\n"
	for group := range slices.Chunk(rows, len(bench.DefaultSubjects)) {
		bundled, others := group[0], group[1:]
		text += fmt.Sprintf("| %d Services", bundled.Services)
		for _, c := range columns {
			fastest := slices.MinFunc(others, func(a, b bench.Row) int { return cmp.Compare(c.of(a), c.of(b)) })
			if c.of(bundled) <= 0 || c.of(fastest) <= 0 {
				t.Fatalf("%s at %d Services: a time of nothing", c.head, bundled.Services)
			}
			text += fmt.Sprintf(" | %.1f times as long", c.of(fastest)/c.of(bundled))
		}
		text += " |\n"
	}
	return text
}
