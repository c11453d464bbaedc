package record

import (
	"bufio"
	"cmp"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"time"
)

// HistoryVersion is the version of the files in a history folder: run.json, events.ndjson and attempts.bin.
const HistoryVersion = 3

// The files of a history.
const (
	RunFile      = "run.json"
	EventsFile   = "events.ndjson"
	AttemptsFile = "attempts.bin"
)

// TimelineFile stands beside them: what was done and when, for `hitless replay`. It is no part of what is judged or hashed.
const TimelineFile = "timeline"

// CaptureFile is a capture of packets beside the folder of a run's history (pcapng; package observers/capture).
const CaptureFile = "capture.pcapng"

// CountersFile has the Counters of a capture beside that folder, as JSON.
const CountersFile = "counters.json"

// Counters are what the client's kernel counted while packets were captured.
type Counters struct {
	Opened   int `json:"opened"`   // connections that it began (ActiveOpens)
	Repeated int `json:"repeated"` // SYNs that it sent again (TCPSynRetrans)
}

// LoopFile has the requests of a loop of curl beside that folder: a LoopRequest in each line, as JSON.
const LoopFile = "loop.ndjson"

// LoopRequest is one run of curl. Its exit code is 0 for an answer; curl(1) lists the others.
type LoopRequest struct {
	At   time.Duration `json:"atNs"` // when curl was started
	Took time.Duration `json:"tookNs"`
	Port uint16        `json:"port"` // of the client
	Exit int           `json:"exit"`
}

// The client's ports of a loop, which no lane has.
const (
	FirstLoopPort = 16384
	LoopPorts     = 4096
)

// History reads the record of a run from its folder. It is the only reader; everything else goes through it.
type History struct {
	dir      string
	folder   string // of the run; empty where the history stands alone
	files    fs.FS  // of the history's folder
	Run      Run
	Seal     *Seal // nil for a record without a seal, and by OpenUnsealed
	unsealed bool  // there is no seal, and there should be one
}

// OpenHistory opens the record of a run that has ended, by the folder of the run or its sub-folder `history`, and compares it with the
// seal. A DamageError says where they differ. A record without a seal is not trusted: see Distrust.
// A version that this program does not read is an error that says so.
func OpenHistory(dir string) (*History, error) { return OpenSigned(dir, nil) }

// OpenSigned is OpenHistory, and demands a signature with the private part of a key, unless the key is nil.
func OpenSigned(dir string, key ed25519.PublicKey) (*History, error) {
	h, err := historyAt(dir)
	if err != nil {
		return nil, err
	}
	if h.folder == "" {
		return h, h.open(nil, key)
	}
	return h, h.open(os.DirFS(h.folder), key)
}

// OpenSignedFS is OpenSigned for the folder of a run in a file system; name is the folder's name in errors.
func OpenSignedFS(folder fs.FS, name string, key ed25519.PublicKey) (*History, error) {
	files, err := fs.Sub(folder, HistoryDir)
	if err != nil {
		return nil, err
	}
	h := &History{dir: filepath.Join(name, HistoryDir), folder: name, files: files}
	return h, h.open(folder, key)
}

// OpenUnsealed opens a record for the program that writes it, before its seal. dir is as for OpenHistory.
func OpenUnsealed(dir string) (*History, error) {
	h, err := historyAt(dir)
	if err != nil {
		return nil, err
	}
	return h, h.readRun()
}

// open reads the seal in the folder of the run, and the head of the record.
func (h *History) open(folder fs.FS, key ed25519.PublicKey) (err error) {
	var seal *Seal
	if folder != nil {
		if seal, err = readSeal(folder); err == nil && seal != nil {
			err = seal.verify(h.files)
		}
		if err == nil && seal != nil && key != nil {
			err = seal.verifySigner(key)
		}
		if version := (*VersionError)(nil); errors.As(err, &version) {
			return fmt.Errorf("the run in %s: %w", h.folder, err)
		}
		if errors.Is(err, fs.ErrPermission) {
			return fmt.Errorf("reading the run in %s: %w; allow this user to read its files", h.folder, err)
		}
		if err != nil {
			return &DamageError{h.folder, err.Error()}
		}
	}
	h.Seal, h.unsealed = seal, seal == nil
	if h.unsealed {
		err = h.checkRegular()
	}
	if err == nil {
		err = h.readRun()
	}
	switch {
	case h.unsealed && (errors.As(err, new(*json.SyntaxError)) || errors.As(err, new(*json.UnmarshalTypeError))):
		return &DamageError{h.folderOrDir(), noSeal + "; " + err.Error()}
	case err == nil && h.unsealed && key != nil:
		return &DamageError{h.folderOrDir(), noSeal + ", so it has no signature"}
	}
	return err
}

// checkRegular finds what no seal has checked: a file that another program would have to end.
func (h *History) checkRegular() error {
	for _, name := range hashedFiles {
		if info, err := fs.Stat(h.files, name); err == nil && !info.Mode().IsRegular() {
			return &DamageError{h.folderOrDir(), noSeal + "; " + name + " is no regular file"}
		}
	}
	return nil
}

// ReadFile is fs.ReadFile of a regular file. A named pipe is an error, since its reader would wait for a writer.
func ReadFile(files fs.FS, name string) ([]byte, error) {
	info, err := fs.Stat(files, name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", name)
	}
	return fs.ReadFile(files, name)
}

func (h *History) readRun() error {
	data, err := fs.ReadFile(h.files, RunFile)
	if errors.Is(err, fs.ErrNotExist) {
		return h.noRecord(err)
	}
	if err != nil {
		return fmt.Errorf("opening the history in %s: %w", h.dir, err)
	}
	if err := json.Unmarshal(data, &h.Run); err != nil {
		return fmt.Errorf("reading %s: %w (it is damaged: copy the folder again, or repeat the run)", filepath.Join(h.dir, RunFile), err)
	}
	if h.Run.SchemaVersion != HistoryVersion {
		return &VersionError{"the history in " + h.dir, h.Run.SchemaVersion, HistoryVersion}
	}
	return nil
}

const noSeal = "it has no seal (" + SealFile + "): the run did not end, or the seal was removed"

// Interrupted is the reason of a run that a person or a signal ended.
const Interrupted = "interrupted"

// EarlyText says that a run ended early, for a reason.
func EarlyText(reason string) string { return "the run ended early: " + reason }

// Distrust says why the record cannot be trusted although it can be read: it has no seal, or the run ended early. It is empty otherwise.
func (h *History) Distrust() string {
	switch {
	case h.unsealed:
		return "the record is not sealed: " + noSeal
	case h.Seal != nil && h.Seal.Early != "":
		return EarlyText(h.Seal.Early)
	}
	return ""
}

// Dir is the history folder.
func (h *History) Dir() string { return h.dir }

func (h *History) folderOrDir() string { return cmp.Or(h.folder, h.dir) }

// maxEventLine limits the memory for an event of a damaged or foreign record. No writer makes one nearly as long.
const maxEventLine = 64 << 20

// Events yields the events in the order in which they were recorded. After an EventError the events go on; any other error ends
// them.
func (h *History) Events() iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		f, err := h.files.Open(EventsFile)
		if err != nil {
			yield(Event{}, fmt.Errorf("opening the events: %w", err))
			return
		}
		defer f.Close()
		lines := bufio.NewScanner(f)
		lines.Buffer(nil, maxEventLine)
		for n := 1; lines.Scan(); n++ {
			e, err := decodeLine(lines.Bytes())
			if err != nil && !errors.As(err, new(*EventError)) {
				yield(e, fmt.Errorf("%s:%d: %w", EventsFile, n, err))
				return
			}
			if !yield(e, err) {
				return
			}
		}
		if err := lines.Err(); err != nil {
			yield(Event{}, fmt.Errorf("reading the events: %w", err))
		}
	}
}

// Attempts yields the attempts one by one, in the order in which their outcomes became known. The first bucket of a thinned
// record is an error: see Entries.
func (h *History) Attempts() iter.Seq2[Attempt, error] {
	return func(yield func(Attempt, error) bool) {
		for e, err := range h.Entries() {
			if err == nil && e.Bucket != nil {
				err = errThinned
			}
			if !yield(e.Attempt, err) || err != nil {
				return
			}
		}
	}
}

// Entries yields the whole record of attempts: each attempt, in the order in which their outcomes became known, and in a
// thinned record buckets of them.
func (h *History) Entries() iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		f, err := h.files.Open(AttemptsFile)
		if err != nil {
			yield(Entry{}, fmt.Errorf("opening the attempts: %w", err))
			return
		}
		defer f.Close()
		r := NewAttemptReader(f)
		for {
			e, err := r.Next()
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				err = fmt.Errorf("%s: %w%s", AttemptsFile, err, h.intact())
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// Origin says where a report comes from: how to repeat the run, and the hash that a repetition is compared by.
type Origin struct {
	Command       string // the one command that repeats the run
	HistorySha256 string // see HistorySha256
}

// intact says which part of the attempts is intact, for an error.
func (h *History) intact() string {
	f, parts := surveyOf(h.files)
	if f == nil {
		return ""
	}
	defer f.Close()
	return "; " + intactText(parts)
}

// Origin takes the hash of the history's files from their seal. Without one it reads all of them.
func (h *History) Origin() (Origin, error) {
	if h.Seal != nil {
		return Origin{Command: cmp.Or(h.repeat(), h.Run.Command), HistorySha256: h.Seal.HistorySha256}, nil
	}
	sum, err := HistorySha256(h.dir)
	return Origin{Command: cmp.Or(h.repeat(), h.Run.Command), HistorySha256: sum}, err
}

// Match checks that the record is the one that results name by the hash of its history; a different one is a DamageError.
func (h *History) Match(historySha256 string) error {
	origin, err := h.Origin()
	if err != nil {
		return err
	}
	if origin.HistorySha256 != historySha256 {
		return &DamageError{filepath.Dir(h.dir), fmt.Sprintf("the results name the history %.12s, and the folder has %.12s", historySha256, origin.HistorySha256)}
	}
	return nil
}

// repeat is the command in host.json beside the history, which has paths of the machine; empty if there is none.
func (h *History) repeat() string {
	data, err := ReadFile(os.DirFS(filepath.Dir(h.dir)), HostFile)
	var host struct {
		Repeat string `json:"repeat"`
	}
	if err != nil || json.Unmarshal(data, &host) != nil {
		return ""
	}
	return host.Repeat
}
