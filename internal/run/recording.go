package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/hitless/hitless/cluster"
	"github.com/hitless/hitless/internal/cache"
	"github.com/hitless/hitless/internal/recording"
	"github.com/hitless/hitless/internal/site"
	"github.com/hitless/hitless/record"
)

// RecordOptions are the options of a recording; see package recording.
type RecordOptions = recording.Options

// Recording is the result of Record.
type Recording struct {
	Text    string // its content in numbers; empty without a recording
	Refused error  // why a replay in the lab refuses it; nil if it does not
}

// Record makes a timeline of the changes of a live cluster, for Options.For or until ctx ends. After an error the recording until then
// may exist. The recording is checked as a replay checks it.
func Record(ctx context.Context, l site.LiveOptions, o RecordOptions) (Recording, error) {
	switch {
	case l.Kubeconfig == "":
		return Recording{}, usagef("which cluster? name its kubeconfig with --kubeconfig FILE")
	case o.File == "":
		return Recording{}, usagef("where to? name a file for the timeline with --out FILE.timeline")
	case o.For < 0:
		return Recording{}, usagef("--for %s: give a length, or leave it out to record until Ctrl-C", o.For)
	}
	if err := recording.CheckFile(o.File); err != nil { // before the API server is asked, which may take long
		return Recording{}, UsageError{Reason: err}
	}
	c, err := cluster.Open(l.Kubeconfig, l.Context)
	if err != nil {
		return Recording{}, UsageError{Reason: err}
	}
	folder := filepath.Dir(o.File)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return Recording{}, usagef("making the folder of the recording: %w; give another file with --out", err)
	}
	if err := cache.CheckWritable(folder); err != nil {
		return Recording{}, usagef("writing to the folder of the recording: %w; give another file with --out", err)
	}
	if o.Asking != nil {
		o.Asking(c.Server, cmp.Or(o.Patience, recording.DefaultPatience))
	}
	sum, err := recording.Record(ctx, c.Client, o)
	err = cluster.Explain(err)
	if _, missing := os.Stat(o.File); missing != nil || sum == (recording.Summary{}) {
		return Recording{}, err
	}
	r := Recording{Text: sum.String()}
	line, readErr := ReadTimeline(context.WithoutCancel(ctx), o.File) // Ctrl-C has ended the recording
	if readErr != nil {
		return r, errors.Join(err, fmt.Errorf("the recording cannot be read, which is a defect of hitless: %w", readErr))
	}
	_, r.Refused = line.pack()
	if r.Refused == nil {
		r.Refused = line.checkLab(record.ControlReplay)
	}
	if r.Refused == nil {
		r.Refused = line.checkRoom()
	}
	return r, err
}
