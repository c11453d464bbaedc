package lab

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// The end of a lab waits for no reader of its failures, however many parts fail.
func TestFailedPartsBlockNobody(t *testing.T) {
	l := &Lab{failed: make(chan error, 16)}
	for range 20 {
		l.runPart(t.Context(), "the kubelet of node-1", func(context.Context) error { return errors.New("no space left") })
	}
	ended := make(chan struct{})
	go func() {
		l.wait.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("a part that failed waits for a reader")
	}
	if err := <-l.Failed(); !strings.Contains(err.Error(), "the kubelet of node-1 failed: no space left") {
		t.Error(err)
	}
}

// A part that ends with the lab has not failed.
func TestPartsEndWithTheLab(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	l := &Lab{failed: make(chan error, 16)}
	l.runPart(ctx, "the control plane", func(ctx context.Context) error { <-ctx.Done(); return errors.New("etcd ended (signal: killed)") })
	stop()
	l.wait.Wait()
	select {
	case err := <-l.Failed():
		t.Error(err)
	default:
	}
}
