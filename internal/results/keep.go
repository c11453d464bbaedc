package results

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/cache"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/reports"
	"github.com/hitless/hitless/reports/compare"
	"github.com/hitless/hitless/suites/conformance"
)

// Keep writes the result in a folder, of a comparison, a conformance suite or a run, into a file: with when and with what each run was made. The
// folder itself does not have these facts, so that shards and repetitions make the same files. It makes the folder of the file, and replaces only
// a file that is a result.
func Keep(ctx context.Context, dir, file string) error {
	if err := checkReplaceable(ctx, file); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("making the folder of %s: %w; give a FILE that can be written", file, err)
	}
	switch {
	case compare.IsComparison(dir):
		return keepComparison(ctx, dir, file)
	case conformance.Is(dir):
		return conformance.Keep(ctx, dir, file)
	}
	return keepRun(dir, file)
}

// checkReplaceable returns an error for a file that exists and is no result.
func checkReplaceable(ctx context.Context, file string) error {
	if _, err := os.Lstat(file); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if _, err := ReadFile(ctx, filepath.Dir(file), filepath.Base(file)); err != nil {
		return fmt.Errorf("%s exists and would be overwritten, but it cannot be read as a result: %w; give another FILE", file, err)
	}
	return nil
}

func keepComparison(ctx context.Context, dir, file string) error {
	c, err := compare.Read(ctx, filepath.Join(dir, compare.File))
	if err != nil {
		return err
	}
	for _, s := range c.Subjects {
		for i := range s.Runs {
			if s.Runs[i].Made, err = madeIn(filepath.Join(dir, filepath.Dir(s.Runs[i].Report))); err != nil {
				return err
			}
		}
	}
	var b bytes.Buffer
	if err := compare.WriteJSON(&b, c); err != nil {
		return err
	}
	return cache.WriteFile(file, b.Bytes())
}

func keepRun(dir, file string) error {
	f, err := reports.OpenRun(dir, nil)
	if err != nil {
		return record.Nor(err, "a comparison ("+compare.File+")", "a conformance suite ("+conformance.File+")")
	}
	if f.Report.Made, err = madeIn(dir); err != nil {
		return err
	}
	var b bytes.Buffer
	if err := analysis.WriteJSON(&b, f.Report); err != nil {
		return err
	}
	return cache.WriteFile(file, b.Bytes())
}

// madeIn says when and with what the run in a folder was made. A folder that does not tell is an error.
func madeIn(dir string) (*record.Made, error) {
	made, err := record.MadeIn(os.DirFS(dir))
	if err == nil && made == nil {
		err = fmt.Errorf("it has no %s", record.HostFile)
	}
	if err != nil {
		return nil, fmt.Errorf("keeping the run in %s: %w; keep results where they were made", dir, err)
	}
	return made, nil
}
