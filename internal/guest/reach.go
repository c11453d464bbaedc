//go:build linux

package guest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hitless/hitless/lab/procs"
	"github.com/hitless/hitless/probes"
)

// reachWithin bounds a request with the start of its program.
const reachWithin = 10 * time.Second

// Reach makes one request of the process itself, over tcp or udp, and waits 2 s at most for its answer.
func Reach(ctx context.Context, network, target string) error {
	return reach(ctx, probes.DialBesideLanes, network, target)
}

// reachByProgram makes a request by a program that start starts. The error has what the program wrote.
func reachByProgram(ctx context.Context, start func(procs.Spec) (*procs.Process, error), network, target string) error {
	ctx, cancel := context.WithTimeout(ctx, reachWithin)
	defer cancel()
	var wrong bytes.Buffer
	p, err := start(procs.Spec{Name: "reach", Path: Program, Args: []string{"guest", "reach", network, target}, Stderr: &wrong})
	if err != nil {
		return fmt.Errorf("requesting %s: %w", target, err)
	}
	select {
	case <-p.Done():
	case <-ctx.Done():
		return errors.Join(context.Cause(ctx), p.Stop(context.Background(), time.Second))
	}
	if p.Err() != nil {
		return fmt.Errorf("requesting %s: %s", target, strings.TrimSpace(wrong.String()))
	}
	return nil
}
