package run

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/internal/progress"
	"github.com/hitless/hitless/internal/site"
	"github.com/hitless/hitless/lab/build"
)

// stage is a demo whose runs and builds are the test's, and what it did, in order.
type stage struct {
	demo
	did     []string
	release chan struct{} // a build waits for it, or for its context
	ended   bool          // the build has returned
}

// newStage is a demo without programs, whose build takes longer than its first run.
func newStage(built error, missing ...build.Target) *stage {
	s := &stage{release: make(chan struct{})}
	s.demo = demo{
		options: Options{Out: "out/demo", Progress: func(e progress.Event) { s.did = append(s.did, e.Text) }, LabOptions: site.LabOptions{ControlPlane: "kube", Programs: build.Built}},
		first: func(r *Result, err error) {
			s.did = append(s.did, "first result")
			close(s.release)
		},
		run: func(_ context.Context, o Options) (*Result, error) {
			s.did = append(s.did, "run "+o.ControlPlane+" in "+o.Out)
			return &Result{Dir: o.Out}, nil
		},
		expect: func(context.Context) (build.Expected, error) {
			return build.Expected{Missing: missing, Takes: 5 * time.Minute}, nil
		},
		build: func(ctx context.Context) error {
			defer func() { s.ended = true }()
			select {
			case <-s.release:
				return built
			case <-ctx.Done():
				return ctx.Err()
			}
		},
	}
	return s
}

// While programs are missing, the first result is there before they are built. Without missing programs there is one run.
func TestDemoShowsAFirstResult(t *testing.T) {
	s := newStage(nil, build.ControlPlane...)
	r, err := s.both(t.Context())
	if err != nil || r.Dir != "out/demo" {
		t.Fatalf("%+v, %v", r, err)
	}
	if want := []string{"run replay in out/demo-first", "first result", "run kube in out/demo"}; !slices.Equal(s.did[1:], want) {
		t.Errorf("it did %q, want %q", s.did[1:], want)
	}
	for _, part := range []string{"a first result, with the replay control plane, is there in about 1m0s;", "kube-apiserver", "etcd@"} {
		if !strings.Contains(s.did[0], part) {
			t.Errorf("the plan does not say %q: %s", part, s.did[0])
		}
	}
	s = newStage(nil)
	if _, err := s.both(t.Context()); err != nil || !slices.Equal(s.did, []string{"run kube in out/demo"}) {
		t.Errorf("with all programs it did %q, %v", s.did, err)
	}
}

// A build that fails leaves the first result, names it, and is a wrong environment (exit code 2).
func TestDemoWithABuildThatFails(t *testing.T) {
	s := newStage(errors.New("compiling etcd@v3.7.0: undefined: x"), build.ControlPlane...)
	_, err := s.both(t.Context())
	if !IsUsage(err) || !strings.Contains(err.Error(), "undefined: x") || !strings.Contains(err.Error(), "out/demo-first") {
		t.Errorf("the error is %v", err)
	}
	if slices.Contains(s.did, "run kube in out/demo") || !slices.Contains(s.did, "first result") {
		t.Errorf("it did %q", s.did)
	}
}

// A first run that ends early decides nothing. One for which the machine lacks something ends the build too.
func TestDemoWithAFirstRunThatFails(t *testing.T) {
	for _, c := range []struct {
		err  error
		runs int
	}{{&InvalidError{Reason: "the guest ended"}, 2}, {usagef("qemu is not installed"), 1}} {
		s := newStage(nil, build.ControlPlane...)
		runs := 0
		s.run = func(_ context.Context, o Options) (*Result, error) {
			if runs++; runs == 1 {
				return nil, c.err
			}
			return &Result{Dir: o.Out}, nil
		}
		_, err := s.both(t.Context())
		if runs != c.runs || (err == nil) != (c.runs == 2) || c.runs == 1 && !errors.Is(err, c.err) {
			t.Errorf("%v: %d runs, %v", c.err, runs, err)
		}
		if !s.ended {
			t.Errorf("%v: the build still runs", c.err)
		}
	}
}

// Ctrl-C ends the build, in the first run and after it.
func TestDemoThatIsInterrupted(t *testing.T) {
	for _, later := range []bool{false, true} {
		ctx, cancel := context.WithCancel(t.Context())
		s := newStage(nil, build.ControlPlane...)
		run := s.run
		s.run = func(ctx context.Context, o Options) (*Result, error) {
			r, err := run(ctx, o)
			if !later {
				cancel()
				err = ctx.Err()
			}
			return r, err
		}
		s.first = func(*Result, error) { cancel() } // and the build goes on
		_, err := s.both(ctx)
		if !errors.Is(err, context.Canceled) || IsUsage(err) || !s.ended || slices.Contains(s.did, "run kube in out/demo") {
			t.Errorf("interrupted later %v: %v, ended %v, it did %q", later, err, s.ended, s.did)
		}
	}
}

// The plan says when the result with the real control plane is there: after the builds, which share the CPUs with the first run.
func TestPlanOfBuilds(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	for takes, want := range map[time.Duration]time.Duration{
		5 * time.Minute: 5*time.Minute + firstTakes/2 + realTakes,
		firstTakes / 6:  firstTakes + realTakes, // the builds end before the first run
	} {
		plan := demoPlan(build.Expected{Missing: build.ControlPlane, Takes: takes}, build.Built)
		if said := "; the result with it is there in about " + site.About(want) + ","; !strings.Contains(plan, said) {
			t.Errorf("with builds of %v the plan does not say %q: %s", takes, said, plan)
		}
	}
}

// Downloads have no expected time, and the plan says that they are downloads.
func TestPlanOfDownloads(t *testing.T) {
	plan := demoPlan(build.Expected{Missing: build.ControlPlane}, build.Released)
	if !strings.Contains(plan, "downloaded") || strings.Contains(plan, "built") || !strings.HasSuffix(plan, "; after that the run with it takes about 1m30s") {
		t.Error(plan)
	}
}
