package run

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"github.com/hitless/hitless/internal/site"
	"github.com/hitless/hitless/reports"
)

// writeOpenMetrics writes the samples of a run that was judged into its folder.
func writeOpenMetrics(dir string) error {
	folder, err := reports.OpenRun(dir, nil)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := reports.WriteOpenMetrics(&b, []*reports.RunFolder{folder}); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, site.OpenMetricsFile), b.Bytes(), 0o644); err != nil {
		return fmt.Errorf("writing the samples of the run: %w; `hitless report %s --format openmetrics` prints them", err, dir)
	}
	return nil
}
