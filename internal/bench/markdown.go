package bench

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Command is the command that creates the rows.
const Command = "make bench-proxier"

// DefaultSubjects are the subjects of docs/proxier.md.
var DefaultSubjects = []string{"bundled", "kube-proxy@v1.37.1/ipvs", "kube-proxy@v1.37.1/ipvs?minSync=0s",
	"kube-proxy@v1.37.1/nftables", "kube-proxy@v1.37.1/nftables?minSync=0s"}

// WriteJSON writes rows to a file.
func WriteJSON(file string, rows []Row) error {
	data, err := json.MarshalIndent(struct {
		SchemaVersion int    `json:"schemaVersion"`
		Command       string `json:"command"`
		Rows          []Row  `json:"rows"`
	}{1, Command, rows}, "", "  ")
	if err == nil {
		err = os.WriteFile(file, append(data, '\n'), 0o644)
	}
	if err != nil {
		return fmt.Errorf("writing the rows: %w", err)
	}
	return nil
}

// Markdown returns the rows as a table in their order.
func Markdown(rows []Row) string {
	var b strings.Builder
	b.WriteString("| Services | subject | cold start | CPU of it | one endpoint | its CPU | one Service | rollout of 100 | its CPU | resident memory | charged memory | netlink messages |\n" +
		"|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n")
	for _, r := range rows {
		name := r.Subject
		if r.MinSync != "default" {
			name += ", min-sync-period " + r.MinSync
		}
		messages := "?"
		if r.NetlinkMessages != nil {
			messages = strconv.Itoa(*r.NetlinkMessages)
		}
		fmt.Fprintf(&b, "| %d | %s | %s | %s | %s | %s | %s | %s | %s | %.0f MB | %.0f MB | %s |\n", r.Services, name, duration(r.ColdStartMs),
			duration(r.CPUSeconds*1000), duration(r.EndpointChangeMs), duration(r.EndpointChangeCPUMs), duration(r.ServiceAddMs), duration(r.RolloutMs),
			duration(r.RolloutCPUMs), r.PeakMB, r.PeakGroupMB, messages)
	}
	return b.String()
}

// duration formats milliseconds with three significant digits.
func duration(ms float64) string {
	if ms >= 1000 {
		return strconv.FormatFloat(ms/1000, 'f', digits(ms/1000), 64) + " s"
	}
	return strconv.FormatFloat(ms, 'f', digits(ms), 64) + " ms"
}

func digits(v float64) int {
	switch {
	case v >= 100:
		return 0
	case v >= 10:
		return 1
	}
	return 2
}
