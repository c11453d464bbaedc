package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hitless/hitless/internal/run"
)

func TestExitCodesAndMessages(t *testing.T) {
	t.Setenv("HITLESS_CACHE", t.TempDir())
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"version", 0, "hitless"},
		{"scenarios", 0, "trafficPolicy=Local"},
		{"scenarios", 0, "client=outside"},
		{"scenarios rollout", 0, "rollouts=2"},
		{"scenarios rolout", 2, "the scenarios are api, churn"},
		{"subjects", 0, "kube-proxy@VERSION"},
		{"museum", 0, "k8s-85643"},
		{"museum list", 0, "k8s-85643"},
		{"museum show k8s-85643", 0, "kube-proxy up to v1.25"},
		{"museum run", 2, "museum list"},
		{"museum run k8s-8564", 2, "did you mean k8s-85643?"},
		{"museum run k8s-85643 k8s-92019 k8s-85643", 2, "k8s-85643 is given twice"},
		{"museum run k8s-85643 --set replicas=2", 2, "needs replicas=1"},
		{"museum lst", 2, "unknown command"},
		{"run rollout --subject exec:main.go", 2, "main.go:"},
		{"--help", 0, "Exit codes"},
		{"run rolout", 2, "quiet, recreate, restart, rollout, scale, soak"},
		{"run", 2, "give one scenario"},
		{"run rollout --subject cilium", 2, "the subjects are bundled"},
		{"run rollout --set replica=1", 2, "did you mean replicas?"},
		{"run rollout --set replicas", 2, "key=value"},
		{"run rollout --rate fast", 2, "rate"},
		{"replay", 2, "call it as `hitless replay FILE"},
		{"replay main.go", 2, "main.go:1: the file is not a timeline"},
		{"replay none.timeline", 2, "reading the timeline"},
		{"replay ../../docs/examples/k8s-71515.timeline --set replicas=none --controlplane replay", 2, "whole number"},
		{"minimize " + filepath.Join(t.TempDir(), "none"), 2, "none"},
		{"compare rollout --subject bundled", 2, "two subjects"},
		{"compare rollout --subject bundled --subject bundled --out " + t.TempDir(), 2, "given twice"},
		{"clean --context other", 2, "--kubeconfig"},
		{"results keep none none/report.json", 2, "none/report.json is in the folder none"},
		{"compare restart --subject bundled --subject kube-proxy@v1.37.1/ipvs --against kube-proxy@v1.37.1/nftables", 2, "give one of bundled, kube-proxy@v1.37.1/ipvs"},
		{"compare restart --subject bundled --subject kube-proxy@v1.37.1/ipvs --budget none.yaml", 2, "reading the budget"},
		{"report . --format json --mixed", 2, "folder of a comparison"},
		{"compare --help", 0, "(default 4)"},
		{"report . --mixed", 2, "has no compare.json"},
		{"report " + filepath.Join(t.TempDir(), "none"), 2, "--out"},
		{"gate out", 2, "--budget"},
		{"report serve " + filepath.Join(t.TempDir(), "none") + " --listen 127.0.0.1:0", 2, "give a folder with runs"},
		{"report serve . --listen here", 2, "--listen"},
		{"doctor --repair", 2, "--cache"},
		{"schema", 0, "hitless report, version 1"},
		{"schema compare", 0, "hitless comparison, version 2"},
		{"schema junit", 2, "compare, conformance, report"},
		{"run rollout --kernel host --clock virtual", 2, "real clock only"},
		{"guest init", 2, "only hitless calls it"},
		{"build kube-proxy", 2, "NAME@VERSION"},
		{"run restart --allow-disruption", 2, "--allow-disruption: only for live clusters"},
		{"run restart --kubeconfig none --set proxy=kube-system/ds/kube-proxy", 2, "reading the kubeconfig none"},
		{"run interference --kubeconfig none", 2, "drain, flap, policy, quiet, restart, rollout, scale, upgrade"},
		{"clean", 2, "--kubeconfig FILE"},
		{"scenarios", 0, "restart --kubeconfig"},
		{"run rollout --kind 1.26", 2, "such as v1.26.0"},
		{"run rollout --kind v1.26.0 --kind v1.25.3 --nodes 2 --dry-run", 0, "Kubernetes v1.25.3 with kind, with a node for the control plane and 2 for pods"},
		{"run rollout --kind v1.26.0 --subject bundled", 2, "--subject: on a live cluster"},
		{"run rollout --kind v1.26.0 --in-cluster", 2, "give one"},
		{"run rollout --kind v1.26.0 --kind 1.25", 2, "Kubernetes 1.25"},
		{"run rollout --in-cluster --context staging", 2, "leave it out"},
		{"run rollout --in-cluster --nodes 2", 2, "leave it out"},
		{"run rollout --dry-run", 2, "--kubeconfig FILE"},
		{"clean --in-cluster --kubeconfig x", 2, "give one"},
		{"run rollout --seed 0", 2, "other than 0"},
		{"run rollout --seed 9223372036854775808", 2, "-2^63 to 2^63-1"},
		{"soak --seeds 0..4", 2, "without 0"},
		{"probe", 2, "HOST:PORT"},
		{"probe nowhere", 2, "HOST:PORT"},
		{"probe 127.0.0.1:80 --policy sometimes", 2, "fresh"},
		{"probe 127.0.0.1:80 --rate 0.0.1", 2, "rate"},
		{"watch", 0, "watch stop"},
		{"watch start", 2, "HOST:PORT"},
		{"watch pause", 2, "unknown command"},
		{"watch stop now", 2, "call it as `hitless watch stop"},
		{"probe --help", 0, "exit code is that of the verdict"},
	} {
		var out bytes.Buffer
		if code := execute(strings.Fields(c.args), &out, &out); code != c.code || !strings.Contains(out.String(), c.want) {
			t.Errorf("hitless %s: exit %d, want %d and a word of %q:\n%s", c.args, code, c.code, c.want, out.String())
		}
	}
}

// A run's errors have the exit codes of the help.
func TestExitCodesOfErrors(t *testing.T) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for _, c := range []struct {
		ctx  context.Context
		err  error
		code int
	}{
		{context.Background(), nil, 0},
		{context.Background(), exitError{code: exitFail}, 1},
		{context.Background(), run.UsageError{}, 2},
		{context.Background(), fmt.Errorf("deploying: %w", &run.InvalidError{Reason: "quota"}), 3},
		{ended, context.Canceled, 130},
	} {
		if got := exitCode(c.ctx, c.err); got != c.code {
			t.Errorf("%T has the exit code %d, want %d", c.err, got, c.code)
		}
	}
}

// An interrupt says that it was one, whatever was under way, and names no remedy of its own.
func TestInterruptsSayThatTheyWere(t *testing.T) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for want, err := range map[string]error{
		"interrupted": context.Canceled,
		"interrupted: asking qemu: context canceled":    fmt.Errorf("asking qemu: %w", context.Canceled),
		"interrupted: the namespace hitless-1 is there": errors.New("the namespace hitless-1 is there"),
	} {
		if got := message(ended, err); got != want {
			t.Errorf("%v gives %q, want %q", err, got, want)
		}
	}
	if got := message(context.Background(), errors.New("x")); got != "x" {
		t.Errorf("without an interrupt: %q", got)
	}
}

// The digest of the program is not read after an interrupt.
func TestVersionAfterAnInterrupt(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := printVersion(ctx, io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want the end of the context", err)
	}
}
