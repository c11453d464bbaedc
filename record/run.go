package record

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"strings"
	"time"
)

// Attempt is one intended probe. All times are offsets from the start of the run on CLOCK_MONOTONIC.
type Attempt struct {
	Lane     uint16        // id of the lane, declared by a Lane event
	Seq      uint64        // number within the lane, from 0, without gaps
	Intended time.Duration // when the schedule said that it starts; an outcome is charged to this instant
	Start    time.Duration // when it really started; Start-Intended is the lateness
	Connect  time.Duration // from Start until the connection was established; 0 if it never was
	Total    time.Duration // from Start until the outcome was known
	Class    Class
	Retrans  uint8          // TCP_INFO tcpi_total_retrans after the connect phase
	Source   netip.AddrPort // the client's end of the five-tuple
	// TupleAge is the time since this five-tuple was last used, 0 when never before. On a connection that stays open
	// (tcp-long) it is the connection's age, 0 for the attempt that opened it.
	TupleAge time.Duration

	Backend     string        // pod that answered, in its own words; empty without an answer
	Node        string        // node of that pod, in its own words
	Generation  string        // pod-template-hash of that pod
	Terminating time.Duration // how long that pod had been shutting down when it answered; 0 when it was not
	Client      string        // address of the client as that pod saw it, or ClientUnchanged; empty when it is not known

	Offender netip.Addr // sender of the ICMP error, if any
	Detail   string     // errno or short text; bounded vocabulary, never with ports or addresses
}

// ClientUnchanged stands for the address of Attempt.Source. Any other address that a pod saw is that of a translation (SNAT).
const ClientUnchanged = "unchanged"

// Lateness is how much later than intended the attempt started.
func (a Attempt) Lateness() time.Duration { return a.Start - a.Intended }

// Run says what was run: the part of the history that is known before its first event. It is history/run.json.
type Run struct {
	SchemaVersion int               `json:"schemaVersion"`
	Scenario      string            `json:"scenario"`
	Parameters    map[string]string `json:"parameters"`
	Seed          int64             `json:"seed"`
	Kernel        Kernel            `json:"kernel"`
	Clock         string            `json:"clock"` // real or virtual
	Subject       Subject           `json:"subject"`
	ControlPlane  string            `json:"controlPlane"` // ControlKube or ControlReplay; a live one's version
	Nodes         []string          `json:"nodes"`
	InputsSha256  string            `json:"inputsSha256"`
	ProgramSha256 string            `json:"programSha256,omitempty"` // of hitless; empty in records of older versions
	Command       string            `json:"command"`                 // the one command that repeats this run
	Budget        Budget            `json:"budget"`
	Record        string            `json:"record,omitempty"`   // RecordThinned, or empty: every attempt stands in the record
	Programs      string            `json:"programs,omitempty"` // ProgramsReleased, or empty
	// Tools are packages with the guest's tools, as NAME_VERSION with commas, where they are others than those that hitless pins.
	Tools string `json:"tools,omitempty"`
}

// The control planes of labs.
const (
	ControlKube   = "kube"   // real Kubernetes programs
	ControlReplay = "replay" // a small stand-in
)

// ProgramsReleased says that the run used upstream's release artifacts. Without it the programs of upstream were built from their
// modules or given by the user, or the run had none.
const ProgramsReleased = "released"

// RoleFresh is the role of a control lane without a schedule: each of its attempts is a new connection, tried at the moment
// at which an established connection of the lane that it is beside failed, or began to stall. Its declared rate is that
// lane's. Its outcomes tell what was lost, and are no loss of their own.
const RoleFresh = "fresh"

// RolePod is the role of a control lane to the own address of a pod of the measured Service, past its proxies. What fails
// there too is the pod's loss or the network's.
const RolePod = "pod"

// RoleUnserved is the role of a control lane to a port that no Service has, at the address of the measured Service. No answer may come; the
// verdict does not depend on it.
const RoleUnserved = "unserved"

// RecordThinned says that the record has buckets of attempts where nothing happened, see Thinner.
const RecordThinned = "thinned"

// Kernel says where the proxies ran.
type Kernel struct {
	Kind    string `json:"kind"` // vm, host, or cluster: a live one
	Release string `json:"release"`
	// Source says where the kernel of a VM comes from: what --guest-kernel named, and the version or digest that it gave. It is empty for
	// the default.
	Source string `json:"source,omitempty"`
	// QEMU is the emulator's version, of a VM, with the revision of its package: another one gives another history.
	QEMU string `json:"qemu,omitempty"`
}

// String is kind, release, source and the number of QEMU's version.
func (k Kernel) String() string {
	text := strings.TrimSpace(k.Kind + " " + k.Named())
	if number, _, _ := strings.Cut(k.QEMU, " "); number != "" {
		text += " in QEMU " + number
	}
	return text
}

// Named is the release and the source.
func (k Kernel) Named() string {
	if k.Source == "" {
		return k.Release
	}
	return k.Release + " (" + k.Source + ")"
}

// Subject is the proxy under test.
type Subject struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Mode    string `json:"mode"`
	Flags   string `json:"flags,omitempty"` // of its program, as NAME=VALUE&NAME=VALUE; those that hitless sets itself are not among them
}

// Made says when and with what a run was made, besides what its header says. The history depends on the programs and tools by their
// content, and not on the time. Results that are kept have it; see MadeIn.
type Made struct {
	Started  string        `json:"started" yaml:"started"`   // by the clock of the machine, RFC 3339
	Programs []MadeProgram `json:"programs" yaml:"programs"` // of upstream, and of a subject that a file describes; empty for none
	Tools    string        `json:"tools" yaml:"tools"`       // ToolsDigest of the packages with the lab's tools
}

// MadeProgram is a program that a run used.
type MadeProgram struct {
	Program string `json:"program" yaml:"program"` // NAME@VERSION
	Sha256  string `json:"sha256" yaml:"sha256"`
}

// NoTools is the Tools of a run without any.
const NoTools = "none"

// ToolsDigest is the SHA-256, in hex, of a list of packages, one a line; NoTools for an empty list.
func ToolsDigest(packages []string) string {
	if len(packages) == 0 {
		return NoTools
	}
	sum := sha256.Sum256([]byte(strings.Join(packages, "\n") + "\n"))
	return hex.EncodeToString(sum[:])
}

// HostFile is the file beside a history with what the history must not depend on.
const HostFile = "host.json"

// MadeIn reads when and with what the run in a folder was made, from its host.json. It is nil for a folder without one.
func MadeIn(folder fs.FS) (*Made, error) {
	data, err := ReadFile(folder, HostFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var host struct {
		Started      string        `json:"started"`
		Programs     []MadeProgram `json:"programs"`
		ToolPackages []string      `json:"toolPackages"`
	}
	if err == nil {
		err = json.Unmarshal(data, &host)
	}
	if err != nil {
		return nil, fmt.Errorf("reading from %s when and with what the run was made: %w; copy the whole folder again from where the run was made", HostFile, err)
	}
	if host.Programs == nil {
		host.Programs = []MadeProgram{}
	}
	return &Made{host.Started, host.Programs, ToolsDigest(host.ToolPackages)}, nil
}
