package main

import (
	"strings"

	"github.com/hitless/hitless/record"
)

// proofTable says which kinds of lanes see which faults of a proof, and why others do not.
func proofTable(string) (string, error) {
	faults := record.ProofFaults()
	var b strings.Builder
	b.WriteString("| kind of lane |")
	for _, f := range faults {
		b.WriteString(" " + string(f) + " |")
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(faults)) + "\n")
	for _, k := range record.LaneKinds() {
		b.WriteString("| `" + k.Protocol + "` |")
		for _, f := range faults {
			if why := k.Blind(f); why != "" {
				b.WriteString(" no: " + why + " |")
			} else {
				b.WriteString(" yes |")
			}
		}
		b.WriteString("\n")
	}
	return b.String(), nil
}
