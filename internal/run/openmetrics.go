package run

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/hitless/hitless/reports"
)

// openMetricsFile is what a run writes beside its reports when it is asked to. Its samples have the times of the host's clock,
// so that it is no function of the plan.
const openMetricsFile = "openmetrics.txt"

// runAndExpose runs, and writes the samples of a run that was judged, whatever its verdict.
func runAndExpose(ctx context.Context, o Options) (*Result, error) {
	o.OpenMetrics = false
	result, err := Run(ctx, o)
	if err != nil || result.Report == nil {
		return result, err
	}
	folder, err := reports.OpenRun(result.Dir)
	if err != nil {
		return result, err
	}
	var b bytes.Buffer
	if err := reports.WriteOpenMetrics(&b, []*reports.RunFolder{folder}); err != nil {
		return result, err
	}
	if err := os.WriteFile(filepath.Join(result.Dir, openMetricsFile), b.Bytes(), 0o644); err != nil {
		return result, fmt.Errorf("writing the samples of the run: %w; `hitless report %s --format openmetrics` prints them", err, result.Dir)
	}
	return result, nil
}
