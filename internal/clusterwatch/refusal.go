package clusterwatch

import (
	"context"
	"fmt"
	"time"

	"github.com/hitless/hitless/cluster"
	"github.com/hitless/hitless/record"
)

// refusal is a time in which the API server refuses to list what the watch follows. The goroutine that asks owns it.
type refusal struct {
	w      *watcher
	listed time.Duration // when the API server listed it last
	reason string        // empty without a refusal
}

// noteRefusals asks the API server until ctx ends, and records from when to when it refuses. The caller must call end after that.
func (w *watcher) noteRefusals(ctx context.Context) (end func()) {
	r, asked := &refusal{w: w, listed: w.now()}, make(chan struct{})
	go func() {
		defer close(asked)
		w.cluster.Ask(ctx, pingAgain, cluster.Watched{Namespace: w.o.Namespace, Selector: w.o.Selector, NodePorts: w.o.NodePorts}, r.answered)
	}()
	return func() {
		<-asked
		r.end(w.now())
	}
}

// answered takes the API server's answer to one question.
func (r *refusal) answered(err error) {
	now := r.w.now()
	switch {
	case err == nil:
		if r.reason != "" {
			r.w.o.Progress(fmt.Sprintf("+%.1f s  the API server lists the Services again", now.Seconds()))
			r.end(now + longestPause)
		}
		r.listed = now
	case cluster.Refused(err):
		if r.reason == "" {
			r.reason = err.Error()
			r.begin(now)
		}
		r.w.causes.noteSilence(silence{r.listed, now})
	}
}

func (r *refusal) begin(at time.Duration) {
	text := fmt.Sprintf("the API server refuses to list the Services (%s): new ones are not measured, and the watch cannot pass; renew the credentials or the rights", r.reason)
	r.w.remark("warning", text)
	r.w.o.Progress(fmt.Sprintf("+%.1f s  %s", at.Seconds(), text))
}

// end records a guard for a refusal: the informers may list only at the given time what existed meanwhile.
func (r *refusal) end(until time.Duration) {
	if r.reason == "" {
		return
	}
	text := "the API server refused to list the Services, so nobody knows which existed: " + r.reason
	r.w.record.Event(record.Event{At: r.w.now(), Object: "API server", Text: text, Body: record.Guard{From: r.listed, Until: until}})
	r.reason = ""
}
