package record

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

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
