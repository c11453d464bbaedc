package run_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/lab/controllers"
	"github.com/hitless/hitless/record"
)

// A run with option OpenMetrics writes samples into its folder, with the values of its report.
func TestRunWritesSamples(t *testing.T) {
	_, kubeconfig := newLiveCluster(t, 3, nil)
	ctx, cancel := context.WithCancel(t.Context())
	client := clientOf(t, kubeconfig)
	played := make(chan error, 2)
	go func() {
		played <- controllers.Run(ctx, client, record.IPv4, []string{"worker-1", "worker-2", "worker-3"})
	}()
	go func() { played <- playKubelet(ctx, client) }()
	out, r, err := runOn(t, kubeconfig, "quiet", func(o *run.Options) { o.Live.Patience, o.OpenMetrics = time.Millisecond, true })
	cancel()
	for range 2 {
		if err := <-played; err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	}
	if err != nil || r.Report == nil || r.Report.Verdict != analysis.Skipped {
		t.Fatalf("%+v, %v; want a skipped run, because the Service has no address", r, err)
	}
	text, err := os.ReadFile(filepath.Join(out, "openmetrics.txt"))
	if err != nil || !strings.Contains(string(text), `verdict="skipped"`) || !strings.HasSuffix(string(text), "# EOF\n") {
		t.Errorf("%v:\n%s", err, text)
	}
}
