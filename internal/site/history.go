package site

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/hitless/hitless/internal/cache"
	"github.com/hitless/hitless/lab/vm"
	"github.com/hitless/hitless/record"
)

// ending is how the record of a guest ended.
type ending struct {
	trailer bool
	reason  string // why the guest ended the run early; empty at the end of the scenario
}

// extract writes the history in a region into one folder, and the other files in it into another.
func extract(region []byte, dir, history string) (end ending, err error) {
	if err := os.MkdirAll(history, 0o755); err != nil {
		return end, fmt.Errorf("making the history's folder: %w", err)
	}
	files := map[vm.FrameKind]*os.File{}
	for kind, name := range map[vm.FrameKind]string{vm.FrameEvent: record.EventsFile, vm.FrameAttempts: record.AttemptsFile,
		vm.FrameTimeline: record.TimelineFile} {
		f, openErr := os.Create(filepath.Join(history, name))
		if openErr != nil {
			return end, fmt.Errorf("writing the history: %w", openErr)
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		files[kind] = f
	}
	for r := vm.NewFrameReader(region); ; {
		kind, payload, err := r.Next()
		if errors.Is(err, io.EOF) {
			return end, nil
		}
		if err != nil {
			return end, err
		}
		switch kind {
		case vm.FrameTrailer:
			end = ending{true, string(payload)}
		case vm.FrameFile:
			err = extractFile(dir, payload)
		case vm.FrameEvent, vm.FrameAttempts, vm.FrameTimeline:
			_, err = files[kind].Write(payload)
		default:
			err = fmt.Errorf("a frame of unknown kind %d", kind)
		}
		if err != nil {
			return end, fmt.Errorf("writing the history: %w", err)
		}
	}
}

func extractFile(dir string, payload []byte) error {
	name, content, err := vm.ParseFile(payload)
	if err != nil {
		return err
	}
	if !filepath.IsLocal(name) {
		return fmt.Errorf("the guest sent a file with the name %q", name)
	}
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, content, 0o644)
}

// checkpointPrefix begins the names of folders with incomplete histories. A run that was killed may leave one.
const checkpointPrefix = ".checkpoint-"

// replaceHistory replaces the files of an older history of the same run. No file is missing at any instant. Events are replaced
// before attempts, as a writer of records writes them; run.json is last.
func replaceHistory(whole, old string) error {
	if err := os.MkdirAll(old, 0o755); err != nil {
		return fmt.Errorf("making the history's folder: %w", err)
	}
	for _, name := range [...]string{record.TimelineFile, record.EventsFile, record.AttemptsFile, record.RunFile} {
		if err := cache.Replace(filepath.Join(whole, name), filepath.Join(old, name)); err != nil {
			return fmt.Errorf("replacing the history: %w", err)
		}
	}
	return nil
}

// inputsDigest is a hash of all that determines a history. In a VM with the virtual clock equal inputs give equal histories.
func inputsDigest(parts ...string) string {
	sum := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(sum, "%d %s\n", len(p), p)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// writeJSON writes a file in one step.
func writeJSON(path string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	if err := cache.WriteFile(path, append(data, '\n')); err != nil {
		return fmt.Errorf("writing the results: %w", err)
	}
	return nil
}

// hostFacts are the content of host.json: facts that the history does not depend on.
type hostFacts struct {
	Command     []string       `json:"command"`
	Repeat      string         `json:"repeat,omitempty"` // repeats the run from any folder, where the record's command lacks the path of a file
	Out         string         `json:"out"`
	Started     string         `json:"started"` // RFC 3339
	WallSeconds float64        `json:"wallSeconds"`
	CPUSeconds  float64        `json:"cpuSeconds,omitempty"` // of the guest's process
	CPU         int            `json:"cpu"`
	QEMU        []string       `json:"qemu"`
	Kernel      string         `json:"kernelPackage"`
	Packed      []string       `json:"packedSha256,omitempty"` // of a VM: of the files that boot, and of the others
	Tools       []string       `json:"toolPackages,omitempty"` // of Debian, in the guest: NAME_VERSION
	Programs    []programFacts `json:"programs,omitempty"`     // of upstream, and of a described subject, in the guest
	Notes       []string       `json:"notes"`
}

// programFacts say where a program comes from.
type programFacts struct {
	Program string   `json:"program"` // NAME@VERSION
	Source  string   `json:"source"`  // built or released, prebuilt: of --binaries, or given: of a described subject
	Sha256  string   `json:"sha256"`
	Notes   []string `json:"notes,omitempty"` // differences from upstream's release
}

// readEnding reads how the record in a region ended.
func readEnding(region []byte) (end ending, err error) {
	for r := vm.NewFrameReader(region); ; {
		kind, payload, err := r.Next()
		if errors.Is(err, io.EOF) {
			return end, nil
		}
		if err != nil {
			return end, err
		}
		if kind == vm.FrameTrailer {
			end = ending{true, string(payload)}
		}
	}
}
