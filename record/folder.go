package record

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// historyAt returns the history in a folder, before anything of it is read.
func historyAt(dir string) (*History, error) {
	if err := checkFolder(dir); err != nil {
		return nil, err
	}
	history, folder, err := locate(dir)
	if err != nil {
		return nil, err
	}
	return &History{dir: history, folder: folder, files: os.DirFS(history)}, nil
}

// locate returns the folder of a history, and the one of its run: it holds the seal and the folder `history`.
func locate(dir string) (history, folder string, err error) {
	full, err := filepath.Abs(dir)
	if err != nil {
		return "", "", fmt.Errorf("opening the history in %s: %w", dir, err)
	}
	exists := func(words ...string) bool {
		_, err := os.Lstat(filepath.Join(words...))
		return err == nil
	}
	switch named := filepath.Base(full) == HistoryDir; {
	case exists(dir, SealFile), !exists(dir, RunFile) && !(named && exists(filepath.Dir(full), SealFile)):
		return filepath.Join(dir, HistoryDir), dir, nil
	case named:
		return dir, filepath.Dir(full), nil
	}
	return dir, "", nil
}

// FolderOf is the folder of a run, by that folder or its sub-folder `history`. Another folder, or a history that stands alone, is an error.
func FolderOf(dir string) (string, error) {
	h, err := historyAt(dir)
	if err != nil {
		return "", err
	}
	if _, err := fs.Stat(h.files, RunFile); errors.Is(err, fs.ErrNotExist) {
		return "", h.noRecord(err)
	}
	return h.Folder()
}

// Folder is the folder of the run, which holds the reports. A history that stands alone has none, which is an error.
func (h *History) Folder() (string, error) {
	if h.folder == "" {
		return "", fmt.Errorf("%s is the history of a run without the folder of the run: rename it to %s, and give the folder that holds it", h.dir, HistoryDir)
	}
	return h.folder, nil
}

// NotARunError is a folder that holds no record of a run. All commands say it with these words.
type NotARunError struct {
	Folder string
	Others []string // what else it could have been: "a comparison (compare.json)"
	reason string
	cause  error
}

// Error names the folder and what is missing.
func (e *NotARunError) Error() string {
	if len(e.Others) == 0 {
		return fmt.Sprintf("%s is not the folder of a run: %s", e.Folder, e.reason)
	}
	text := e.Folder + " is neither the folder of a run"
	for _, other := range e.Others {
		text += " nor that of " + other
	}
	return text + ": " + e.reason
}

// Unwrap returns the error of the file system, if there was one.
func (e *NotARunError) Unwrap() error { return e.cause }

// Nor adds what else a folder could have been to the error that it is not that of a run. Other errors stay as they are.
func Nor(err error, others ...string) error {
	found := (*NotARunError)(nil)
	if !errors.As(err, &found) {
		return err
	}
	more := *found
	more.Others = append(more.Others[:len(more.Others):len(more.Others)], others...)
	return &more
}

// written says where the folder of a run comes from.
const written = " (a run writes it to --out)"

// checkFolder refuses a path that is no folder.
func checkFolder(dir string) error {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &NotARunError{Folder: dir, reason: "there is no such folder" + written, cause: err}
	case err != nil:
		return fmt.Errorf("opening the run: %w", err)
	case !info.IsDir():
		return &NotARunError{Folder: dir, reason: "it is a file; give the folder of the run"}
	}
	return nil
}

// noRecord is the error for a folder without the head of a record.
func (h *History) noRecord(cause error) error {
	return &NotARunError{Folder: h.folderOrDir(), reason: "it has no " + filepath.Join(HistoryDir, RunFile) + written, cause: cause}
}

// hashedFiles are the files that every history has, in the order of their hash.
var hashedFiles = [...]string{RunFile, EventsFile, AttemptsFile}

func hashed(name string) bool { return slices.Contains(hashedFiles[:], name) }

// HistorySha256 returns the hash of a history: over run.json, events.ndjson and attempts.bin in this order, each led by
// a line with its name and its length in bytes. dir is the history's folder, or the run's folder that holds it.
// Equal inputs with an unequal history are a defect in a run with the virtual clock.
func HistorySha256(dir string) (string, error) {
	dir, _, err := locate(dir)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	for _, name := range hashedFiles {
		if err := hashFile(sum, dir, name); err != nil {
			return "", fmt.Errorf("hashing the history: %w", err)
		}
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

func hashFile(sum io.Writer, dir, name string) error {
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	fmt.Fprintf(sum, "%s %d\n", name, info.Size())
	_, err = io.Copy(sum, f)
	return err
}
