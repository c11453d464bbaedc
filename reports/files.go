package reports

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// outFile is a file that is ready to be written.
type outFile struct {
	name string
	data []byte
}

// writeFiles writes files into a folder. All of them are complete on the disk before the first takes its name, so that
// a full disk or an interrupt leaves the files of before, and never half a file.
func writeFiles(dir string, files []outFile) (err error) {
	var ready []string
	defer func() {
		for _, name := range ready {
			if removeErr := os.Remove(name); !errors.Is(removeErr, os.ErrNotExist) {
				err = errors.Join(err, removeErr)
			}
		}
	}()
	for _, f := range files {
		t, err := os.CreateTemp(dir, "."+f.name+"-")
		if err != nil {
			return fmt.Errorf("writing %s: %w (give a folder that can be written)", filepath.Join(dir, f.name), err)
		}
		ready = append(ready, t.Name())
		_, err = t.Write(f.data)
		if err = errors.Join(err, t.Chmod(0o644), t.Close()); err != nil {
			return fmt.Errorf("writing %s: %w (the files of before are untouched)", filepath.Join(dir, f.name), err)
		}
	}
	for i, f := range files {
		if err := os.Rename(ready[i], filepath.Join(dir, f.name)); err != nil {
			return fmt.Errorf("writing %s: %w", filepath.Join(dir, f.name), err)
		}
	}
	return nil
}
