//go:build unix

package build

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/mod/module"
)

// goScript puts a shell script in the place of the go command.
func goScript(t *testing.T, script string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "go"), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(filepath.ListSeparator)+os.Getenv("PATH"))
	return dir
}

func TestUsersSettingsDoNotReachTheBuild(t *testing.T) {
	for name, value := range map[string]string{
		"GOFLAGS": "-mod=vendor", "GOWORK": "/elsewhere/go.work", "CGO_ENABLED": "1", "GOAMD64": "v4", "GOTOOLCHAIN": "auto", "GOEXPERIMENT": "x",
	} {
		t.Setenv(name, value)
	}
	dir := goScript(t, `echo "$GOFLAGS|$GOWORK|$CGO_ENABLED|$GOAMD64|$GOTOOLCHAIN|$GOEXPERIMENT|$GOTMPDIR|$*" > "$0.said"`)
	err := goCommand{}.build(t.Context(), job{Packages: []string{"a.com/x"}, Ldflags: "-s -w", Out: "out/", Temp: "/tmp/here"})
	if err != nil {
		t.Fatal(err)
	}
	want := "-mod=readonly|off|0|v1|local||/tmp/here|build -v -trimpath -buildvcs=false -gcflags=all=-dwarf=false -ldflags -s -w -o out/ a.com/x\n"
	if diff := cmp.Diff(want, content(t, filepath.Join(dir, "go.said"))); diff != "" {
		t.Error(diff)
	}
}

// The packages that the go command begins to compile are no part of its messages.
func TestCompileErrorIsWhatTheGoCommandSaid(t *testing.T) {
	goScript(t, `printf 'internal/abi\nk8s.io/api/core/v1\n# k8s.io/api/core/v1\n./a.go:1: undefined: x\n\tit is needed\nlast words' >&2; exit 1`)
	var begun []string
	err := goCommand{}.build(t.Context(), job{Compiles: func(pkg string) { begun = append(begun, pkg) }})
	var failure *compileError
	if !errors.As(err, &failure) {
		t.Fatalf("error is %v", err)
	}
	if diff := cmp.Diff("# k8s.io/api/core/v1\n./a.go:1: undefined: x\n\tit is needed\nlast words", failure.Output); diff != "" {
		t.Error("messages: ", diff)
	}
	if diff := cmp.Diff([]string{"internal/abi", "k8s.io/api/core/v1"}, begun); diff != "" {
		t.Error("packages: ", diff)
	}
}

// A build beside which a run goes on is nicer than this process; another one is not.
func TestLowPriority(t *testing.T) {
	for _, low := range []bool{false, true} {
		dir := goScript(t, `nice > "$0.said"`)
		own, err := exec.Command("nice").Output()
		if err == nil {
			err = goCommand{}.build(t.Context(), job{Low: low})
		}
		if err != nil {
			t.Fatal(err)
		}
		said := content(t, filepath.Join(dir, "go.said"))
		if nicer := said != string(own); nicer != low && strings.TrimSpace(string(own)) != "19" {
			t.Errorf("low %v: the nice value is %s, that of this process %s", low, said, own)
		}
	}
}

// Compilers keep their garbage only where the memory suffices, and where the user says nothing else.
func TestCollectorOfCompilers(t *testing.T) {
	for _, c := range []struct {
		mb, cpus int
		set      string
		want     []string
	}{
		{8000, 2, "", []string{"GOGC=off", "GOMEMLIMIT=1024MiB"}},
		{4400, 2, "", nil},
		{8000, 4, "", nil},
		{64000, 2, "GOGC", nil},
		{64000, 2, "GOMEMLIMIT", nil},
	} {
		for _, name := range []string{"GOGC", "GOMEMLIMIT"} {
			t.Setenv(name, map[bool]string{true: "400"}[name == c.set])
		}
		if diff := cmp.Diff(c.want, collectorEnv(c.mb, c.cpus)); diff != "" {
			t.Errorf("%+v: %s", c, diff)
		}
	}
}

func TestDownloadAnswers(t *testing.T) {
	goScript(t, `cat <<'END'
{"Path": "a.com/y", "Version": "v1.0.0", "Error": "a.com/y@v1.0.0: 404 Not Found"}
{"Path": "a.com/x", "Version": "v1.0.0", "Dir": "/x", "Sum": "h1:s", "GoModSum": "h1:m", "Origin": {"VCS": "git"}}
END
echo 'it went wrong' >&2
exit 1`)
	mods := []module.Version{{Path: "a.com/x", Version: "v1.0.0"}, {Path: "a.com/y", Version: "v1.0.0"}, {Path: "a.com/z", Version: "v1.0.0"}}
	got, err := goCommand{}.download(t.Context(), "", true, mods)
	if err != nil {
		t.Fatal(err)
	}
	want := []download{
		{Path: "a.com/x", Version: "v1.0.0", Dir: "/x", Sum: "h1:s", GoModSum: "h1:m"},
		{Path: "a.com/y", Version: "v1.0.0", Error: "a.com/y@v1.0.0: 404 Not Found"},
		{Path: "a.com/z", Version: "v1.0.0", Error: "a.com/z@v1.0.0: exit status 1: it went wrong\n"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestDownloadWithoutTheChecksumDatabaseIsForOneModuleOnly(t *testing.T) {
	dir := goScript(t, `echo "$GONOSUMDB" >> "$0.said"; echo '{"Path": "a.com/x", "Version": "v1.0.0"}'`)
	for _, verify := range []bool{true, false} {
		if _, err := (goCommand{}).download(t.Context(), "", verify, []module.Version{{Path: "a.com/x", Version: "v1.0.0"}}); err != nil {
			t.Fatal(err)
		}
	}
	if got := content(t, filepath.Join(dir, "go.said")); got != os.Getenv("GONOSUMDB")+"\na.com/x\n" {
		t.Errorf("the go command was told %q", got)
	}
}

func TestNoGoCommand(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := (goCommand{}).describe(t.Context()); !errors.Is(err, errNoGo) {
		t.Errorf("error is %v", err)
	}
}

// The go command's compilers are killed with it.
func TestCancelKillsTheProcessGroup(t *testing.T) {
	dir := goScript(t, `sleep 300 & echo $! > "$0.new"; mv "$0.new" "$0.pid"; wait`)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- goCommand{}.build(ctx, job{}) }()
	var pid int
	eventually(t, "the script starts", func() bool {
		text, err := os.ReadFile(filepath.Join(dir, "go.pid"))
		if err != nil {
			return false
		}
		pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
		return err == nil
	})
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v", err)
	}
	eventually(t, "the child of the go command ends", func() bool { return !running(pid) })
}

// running tells whether a process runs; one that is dead but not yet reaped does not.
func running(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return false
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(state, "Z")
}

func TestReleaseTags(t *testing.T) {
	for version, want := range map[string]int{"go1.26.8": 26, "go1.27rc1": 27, "go1.21": 21, "devel": 0} {
		if got := releaseTags(version); len(got) != want {
			t.Errorf("%s has %d release tags, want %d", version, len(got), want)
		}
	}
}
