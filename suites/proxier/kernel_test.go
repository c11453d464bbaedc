//go:build lab

// Package proxier runs the proxier's tests that need IPVS in the lab's kernel. Elsewhere they skip where the kernel
// has no IPVS; here none may skip.
package proxier

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/internal/cache"
	"github.com/hitless/hitless/internal/guest"
	"github.com/hitless/hitless/internal/site"
	"github.com/hitless/hitless/lab/build"
	"github.com/hitless/hitless/lab/vm"
	"github.com/hitless/hitless/suites"
)

var (
	only = flag.String("guest.run", "", "regular expression of the tests to run in the guest; empty for all")
	seed = flag.Int64("guest.seed", 1, "seed of the guest, which shifts its timing")
)

// packages have netns tests that need IPVS, in lab/topology control groups and in lab/container a VM's root, and run in this order. contract is the first, since new network namespaces inherit sysctls
// of the guest's own one, which other tests change.
var packages = []string{"suites/proxier/contract", "proxier/linux", "proxier/engine", "proxier", "suites/proxier/migration", "lab/topology", "lab/container"}

// smoke matches the tests of `make smoke`: connections through virtual servers, the effect of changes on them, and what a node has for itself.
const smoke = "ThroughIPVS|BusyConnections|UDPFlowsFollow|OfANode"

// kubeProxy is the kube-proxy that the migration and contract tests use.
var kubeProxy = build.Target{Name: "kube-proxy", Version: "v1.37.1"}

func smokeOnly() bool { return suites.Selected(suites.Smoke) && !suites.RunsUnlabeled() }

// The tests of packages run in a guest; all must pass.
func TestOnTheRealKernel(t *testing.T) {
	result := regexp.MustCompile(`^\s*--- (PASS|FAIL|SKIP): `)
	counts := map[string]int{}
	console := boot(t, func(line string) {
		if m := result.FindStringSubmatch(line); m != nil {
			counts[m[1]]++
		}
		t.Log(line)
		if strings.Contains(line, "no tests to run") && *only == "" && !smokeOnly() {
			t.Error("a package has no matching test")
		}
	})
	if counts["FAIL"]+counts["SKIP"] > 0 || counts["PASS"] == 0 {
		t.Errorf("%d tests passed, %d failed and %d skipped in the guest; all must pass", counts["PASS"], counts["FAIL"], counts["SKIP"])
	}
	for _, line := range console {
		if strings.HasPrefix(line, "hitless:") {
			t.Error(line)
		}
	}
}

// boot runs the tests in a guest and returns the last lines of its console.
func boot(t *testing.T, line func(string)) []string {
	t.Helper()
	files, kernel := image(t)
	boot, _, err := vm.BootImage(files, kernel, guest.Program, append(slices.Clone(vm.Modules), "sctp")...)
	if err != nil {
		t.Fatal(err)
	}
	tests := *only
	if tests == "" && smokeOnly() {
		tests = smoke
	}
	plan := guest.Plan{Scenario: guest.TestsScenario, Parameters: map[string]string{"run": tests}, Seed: *seed}
	base, err := plan.Base().Marshal()
	if err != nil {
		t.Fatal(err)
	}
	whole, err := plan.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := cache.Dir()
	if err != nil {
		t.Fatal(err)
	}
	var packed []string
	for _, image := range []*vm.Image{boot, files} {
		p, err := image.Pack(context.Background(), filepath.Join(dir, "initramfs"), func(s string) { t.Log(s) })
		if err != nil {
			t.Fatal(err)
		}
		defer os.Remove(p.File) // it contains this run's test programs, which no other run uses
		packed = append(packed, p.File)
	}
	outcome, err := vm.Run(context.Background(), vm.Boot{Kernel: kernel, Initrd: packed[0], Files: packed[1], Base: base, Plan: whole, MemoryMB: 2048,
		Deadline: 30 * time.Minute, Line: func(text string, _ []byte) { line(text) }})
	if err != nil {
		t.Fatal(err)
	}
	return append(outcome.Console, closed(outcome)...)
}

func closed(o *vm.Outcome) []string {
	if err := o.Close(); err != nil {
		return []string{"hitless: " + err.Error()}
	}
	return nil
}

// image packs the test programs and the programs that they and the guest need.
func image(t *testing.T) (*vm.Image, vm.Kernel) {
	t.Helper()
	dir, err := cache.Dir()
	if err != nil {
		t.Fatal(err)
	}
	kernel, err := vm.FetchKernel(context.Background(), vm.KernelChoice{}, filepath.Join(dir, "kernel"), func(s string) { t.Log(s) })
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "hitless")
	if err := suites.TestProgram(program); err != nil {
		t.Fatal(err)
	}
	img := vm.NewImage()
	img.Add(guest.Program, program, 0o755)
	if err := site.AddProxyTools(context.Background(), img, dir, func(s string) { t.Log(s) }); err != nil {
		t.Fatal(err)
	}
	builder := &build.Builder{Cache: filepath.Join(dir, "build"), Progress: func(s build.Step) { t.Log(s.Text) }}
	built, err := builder.Build(context.Background(), kubeProxy)
	if err != nil {
		t.Fatal(err)
	}
	img.Add("/usr/bin/kube-proxy", built[0].Path, 0o755)
	for i, name := range packages {
		file := filepath.Join(t.TempDir(), "tests")
		if err := suites.BuildTests("github.com/hitless/hitless/"+name, file, "netns"); err != nil {
			t.Fatal(err)
		}
		img.Add(filepath.Join(guest.TestsDir, fmt.Sprint(i, "-", strings.ReplaceAll(name, "/", "-"))), file, 0o755)
	}
	return img, kernel
}
