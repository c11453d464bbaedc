package main

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/hitless/hitless/analysis/verify"
	"github.com/hitless/hitless/internal/results"
	"github.com/hitless/hitless/internal/units"
)

// verifiedTable is the table of the runs that were verified with their packets: those that lost connections first.
func verifiedTable(top string) (string, error) {
	files, err := committed(top, "verified/*.json")
	if err != nil {
		return "", err
	}
	var all []*verify.Result
	for _, file := range files {
		r, err := results.ReadVerified(context.Background(), file)
		if err != nil {
			return "", fmt.Errorf("reading %s: %w", file, err)
		}
		all = append(all, r)
	}
	losses := func(r *verify.Result) int { return r.Run.Dropped + r.Run.Delayed }
	slices.SortStableFunc(all, func(a, b *verify.Result) int {
		return min(1, losses(b)) - min(1, losses(a))
	})
	var text bytes.Buffer
	text.WriteString("| run | verdict | dropped | delayed | attempts compared | ties | disagreements |\n|---|---|---|---|---|---|---|\n")
	for _, r := range all {
		compared, ties := 0, 0
		for _, l := range r.Lanes {
			compared += l.Attempts - l.Unstarted - l.Undecided
			ties += l.Ties
		}
		found := units.Thousands(len(r.Findings) + r.More)
		if doubt := r.Doubt(); doubt != "" {
			found = "inconclusive: " + doubt
		}
		fmt.Fprintf(&text, "| `%s` | %s | %s | %s | %s | %s | %s |\n", shortCommand(r.Run.Command), r.Run.Verdict, units.Thousands(r.Run.Dropped), units.Thousands(r.Run.Delayed),
			units.Thousands(compared), units.Thousands(ties), found)
	}
	return text.String(), nil
}

// commonToVerified are the arguments that all rows share.
var commonToVerified = []string{" --controlplane replay", " --capture", " --set baseline=10s", " --set settle=10s", " --rate 50", "hitless run "}

func shortCommand(command string) string {
	for _, words := range commonToVerified {
		command = strings.Replace(command, words, "", 1)
	}
	return command
}
