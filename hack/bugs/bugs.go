// Package bugs reads and writes docs/results/museum: the answers of the museum's specimens, which hack/museum measures and hack/docs shows.
package bugs

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/hitless/hitless/internal/cache"
	"github.com/hitless/hitless/internal/run"
)

// Answers are the answers of the two specimens of a bug, each sorted by seed.
type Answers struct {
	Bad  []run.BugResult `json:"bad"`
	Good []run.BugResult `json:"good"`
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
