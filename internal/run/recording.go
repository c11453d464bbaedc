package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/hitless/hitless/cluster"
	"github.com/hitless/hitless/internal/recording"
	"github.com/hitless/hitless/internal/site"
)

// RecordOptions are what is recorded and where to; see package record.
type RecordOptions = recording.Options

// Recording is a timeline that was made of a live cluster.
type Recording struct {
	Text  string // what is in it; empty when there is none
	Unfit error  // why a run in the lab would refuse it; nil when none would
}

// Record makes a timeline of what happens on a live cluster until its time is over or ctx ends. With an error there may be a
// recording all the same: until then. It is read again, as a replay reads it.
func Record(ctx context.Context, l site.LiveOptions, o RecordOptions) (Recording, error) {
	switch {
	case l.Kubeconfig == "":
		return Recording{}, usagef("which cluster? name its kubeconfig with --kubeconfig FILE")
	case o.File == "":
		return Recording{}, usagef("where to? name a file for the timeline with --out FILE.timeline")
	case o.For < 0:
		return Recording{}, usagef("--for %s: give a length, or leave it out to record until Ctrl-C", o.For)
	}
	if err := os.MkdirAll(filepath.Dir(o.File), 0o755); err != nil {
		return Recording{}, usagef("making the folder of the recording: %w; give another file with --out", err)
	}
	c, err := cluster.Open(l.Kubeconfig, l.Context)
	if err != nil {
		return Recording{}, UsageError{Reason: err}
	}
	sum, err := recording.Record(ctx, c.Client, o)
	err = cluster.Explain(err)
	if _, missing := os.Stat(o.File); missing != nil || sum == (recording.Summary{}) {
		return Recording{}, err
	}
	r := Recording{Text: sum.String()}
	line, readErr := ReadTimeline(o.File)
	if readErr != nil {
		return r, errors.Join(err, fmt.Errorf("the recording cannot be read, which is a defect of hitless: %w", readErr))
	}
	_, r.Unfit = line.pack()
	if r.Unfit == nil {
		r.Unfit = line.checkLab("replay")
	}
	if r.Unfit == nil {
		r.Unfit = line.checkRoom()
	}
	return r, err
}
