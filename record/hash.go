package record

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// HistorySha256 returns the hash of a history: over run.json, events.ndjson and attempts.bin in this order, each led by
// a line with its name and its length in bytes. dir is the history's folder, or the run's folder that holds it.
// Equal inputs with an unequal history are a defect in a run with the virtual clock.
func HistorySha256(dir string) (string, error) {
	dir = historyFolder(dir)
	sum := sha256.New()
	for _, name := range [...]string{RunFile, EventsFile, AttemptsFile} {
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

// historyFolder returns the folder that holds the three files: dir itself, or its sub-folder `history`.
func historyFolder(dir string) string {
	if _, err := os.Stat(filepath.Join(dir, RunFile)); errors.Is(err, os.ErrNotExist) {
		return filepath.Join(dir, "history")
	}
	return dir
}
