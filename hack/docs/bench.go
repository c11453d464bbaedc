package main

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/hitless/hitless/internal/bench"
)

// benchRows returns the committed rows of `make bench-proxier`: each subject at each number of Services, once.
func benchRows(top string) (rows []bench.Row, err error) {
	files, err := committed(top, "bench/*.json")
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		part, err := bench.ReadResults(file)
		if err != nil {
			return nil, err
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
				return nil, err
			}
			want = append(want, fmt.Sprintf("%s %s %d", s.Spec, cmp.Or(s.MinSync, "default"), services))
		}
	}
	if !slices.Equal(have, want) {
		return nil, fmt.Errorf("the committed rows are\n%q, want\n%q; run `make bench-proxier`", have, want)
	}
	return rows, nil
}

func benchTables(top string) (string, error) {
	rows, err := benchRows(top)
	if err != nil {
		return "", err
	}
	ratios, err := ratios(rows)
	return bench.Markdown(rows) + "\n" + ratios, err
}

// ratios is a table of the time of the fastest kube-proxy divided by that of the bundled proxier.
func ratios(rows []bench.Row) (string, error) {
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
				return "", fmt.Errorf("%s at %d Services: a committed time is 0", c.head, bundled.Services)
			}
			text += fmt.Sprintf(" | %.1f times as long", c.of(fastest)/c.of(bundled))
		}
		text += " |\n"
	}
	return text, nil
}
