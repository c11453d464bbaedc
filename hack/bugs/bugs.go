// Package bugs reads and writes docs/results/museum: the answers of the museum's specimens, which hack/museum measures and hack/docs shows.
package bugs

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/hitless/hitless/internal/cache"
	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/scenarios/museum"
)

// Answers are the answers of the two specimens of a bug, each sorted by seed.
type Answers struct {
	Bad  []run.BugResult `json:"bad"`
	Good []run.BugResult `json:"good"`
}

// Select returns the entries of a list of ids, such as k8s-134147,k8s-80403. An empty list is all of them.
func Select(ids string) (entries []museum.Entry, err error) {
	if ids == "" {
		return museum.All(), nil
	}
	for id := range strings.SplitSeq(ids, ",") {
		e, err := museum.Find(id)
		if err != nil {
			return nil, err
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// File is the file of a bug's answers below the top of the tree.
func File(top, id string) string { return filepath.Join(top, "docs/results/museum", id+".json") }

// Read reads a file of answers. The error is fs.ErrNotExist for a bug that was not run.
func Read(file string) (a Answers, err error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return a, err
	}
	if err := json.Unmarshal(data, &a); err != nil {
		return a, fmt.Errorf("%s: %w", file, err)
	}
	return a, nil
}

// Write replaces a file of answers at once, and makes its folder.
func Write(file string, a Answers) error {
	data, err := json.MarshalIndent(a, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return cache.WriteFile(file, append(data, '\n'))
}
