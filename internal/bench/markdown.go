package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/hitless/hitless/record"
)

// Command is the command that creates the rows.
const Command = "make bench-proxier"

// DefaultSubjects are the subjects of docs/proxier.md.
var DefaultSubjects = []string{"bundled", "kube-proxy@v1.37.1/ipvs", "kube-proxy@v1.37.1/ipvs?minSync=0s",
	"kube-proxy@v1.37.1/nftables", "kube-proxy@v1.37.1/nftables?minSync=0s"}

// Results is the file of a benchmark.
type Results struct {
	SchemaVersion int    `json:"schemaVersion"`
	Command       string `json:"command"`
	// The next fields are missing in files of older versions.
	ProgramSha256 string         `json:"programSha256,omitempty"` // of hitless
	Kernel        *record.Kernel `json:"kernel,omitempty"`
	ControlPlane  string         `json:"controlPlane,omitempty"`
	Made          *record.Made   `json:"made,omitempty"`
	Rows          []Row          `json:"rows"`
}

// resultsVersion is the version of Results.
const resultsVersion = 1

// NewResults are the rows of a benchmark with the header of its run, and when and with what it was made.
func NewResults(rows []Row, run record.Run, made *record.Made) *Results {
	return &Results{SchemaVersion: resultsVersion, Command: Command, ProgramSha256: run.ProgramSha256, Kernel: &run.Kernel, ControlPlane: run.ControlPlane, Made: made, Rows: rows}
}

// Write writes the results to a file.
func (r *Results) Write(file string) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err == nil {
		err = os.WriteFile(file, append(data, '\n'), 0o644)
	}
	if err != nil {
		return fmt.Errorf("writing the rows: %w", err)
	}
	return nil
}

// ReadResults reads the file of a benchmark. It refuses unknown fields, other versions and files without rows.
func ReadResults(file string) (*Results, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading the rows of a benchmark: %w", err)
	}
	var r Results
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&r); err != nil {
		return nil, fmt.Errorf("reading %s: %w; `%s` writes it again", file, err, Command)
	}
	if r.SchemaVersion != resultsVersion || len(r.Rows) == 0 {
		return nil, fmt.Errorf("reading %s: it has version %d and %d rows, want version %d and at least one row; `%s` writes it again", file, r.SchemaVersion, len(r.Rows), resultsVersion, Command)
	}
	return &r, nil
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
