//go:build linux

package hack_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/hack/scripttest"
)

// typed gives a command a terminal, and returns what types Ctrl-C there.
func typed(t *testing.T, cmd *exec.Cmd) (ctrlC func()) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { screen.Close() })
	if err := unix.IoctlSetPointerInt(int(screen.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(screen.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	terminal, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { terminal.Close() })
	cmd.Stdin = terminal
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	return func() {
		if _, err := screen.WriteString("\x03"); err != nil {
			t.Error(err)
		}
	}
}

// waits is the text of a program that says by the pipe begun that it waits, and ends with an exit code after an interrupt. Programs that test end so.
func waits(code string) string {
	return "trap 'kill $!; echo stopped >>stopped; exit " + code + "' INT\nsleep 600 &\necho begun >begun\nwait\n"
}

// interrupted runs a script, and interrupts it when a program waits. It returns the exit code and the output.
func interrupted(t *testing.T, s scripttest.Tree, cmd *exec.Cmd, interrupt func()) (code int, out string) {
	t.Helper()
	begin := filepath.Join(s.Dir, "begun")
	if err := unix.Mkfifo(begin, 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(s.Dir, "log")) // programs that are left would hold a pipe
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	begun, ended := make(chan struct{}), make(chan struct{})
	go func() { _, _ = os.ReadFile(begin); close(begun) }()
	go func() { _ = cmd.Wait(); close(ended) }() // the exit code is the result
	select {
	case <-begun:
		interrupt()
	case <-ended:
		t.Fatalf("it ended before a program waited:\n%s", s.Read("log"))
	}
	<-ended
	return cmd.ProcessState.ExitCode(), s.Read("log")
}

// soon ends the programs of a test that would wait for ever.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// Ctrl-C during a job ends the night: the job is no failed one, and the next does not begin.
func TestCtrlCEndsTheNight(t *testing.T) {
	s := scripttest.New(t, "nightly.sh rows.sh netns.sh", map[string]string{
		"hitless": "printf 'kube-proxy\\t/x\\n'\n",
		"go":      "echo \"$@\" >>calls\n",
		"git":     "",
		"unshare": "case $* in *internal/routing*) exec sleep 600 ;; esac\n" + waits("1"),
	})
	s.Program("hack/unit.sh", "echo explore >>calls\n")
	cmd := s.Command(soon(t), []string{"SUBSET=netns,explore"}, "nightly.sh")
	code, out := interrupted(t, s, cmd, typed(t, cmd))
	if calls := s.Read("calls"); code != 130 || calls != "" || s.Read("stopped") == "" {
		t.Errorf("exit code %d after the calls %q:\n%s", code, calls, out)
	}
}

// A job that was interrupted by itself ends the night too. make would end with exit code 2.
func TestAnInterruptedJobEndsTheNight(t *testing.T) {
	for _, job := range []string{"cross", "netns", "release-check", "explore"} {
		s := scripttest.New(t, "nightly.sh rows.sh", map[string]string{"hitless": "", "go": "echo \"$@\" >>calls\n", "git": ""})
		for _, name := range []string{"cross", "netns", "release-check", "unit"} {
			s.Program("hack/"+name+".sh", "exit 130\n")
		}
		s.Program("hack/packages.sh", "")
		s.Write("Makefile", "cross netns release-check:\n\t@hack/$@.sh\nexplore:\n\t@hack/unit.sh\n")
		code, out := s.Run([]string{"SUBSET=" + job}, "nightly.sh")
		if calls := s.Read("calls"); code != 130 || calls != "" || !strings.Contains(out, "interrupted") {
			t.Errorf("%s: exit code %d after the calls %q:\n%s", job, code, calls, out)
		}
	}
}

// Ctrl-C ends the lab tests, whichever exit code the tests in the foreground have then.
func TestCtrlCEndsTheLabTests(t *testing.T) {
	s := scripttest.New(t, "lab-test.sh", map[string]string{"hitless": "", "chrt": ""})
	s.Program("hack/prometheus.sh", "")
	s.Program("hack/gotest.sh", "case $* in *suites/kernels*) ;; *) exec sleep 600 ;; esac\n")
	s.Program("hack/bench-probes.sh", waits("1"))
	cmd := s.Command(soon(t), nil, "lab-test.sh")
	if code, out := interrupted(t, s, cmd, typed(t, cmd)); code != 130 || s.Read("stopped") == "" {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}

// An interrupt ends the measurement of the probe engine, which is a session of its own.
func TestAnInterruptEndsTheMeasurementOfProbes(t *testing.T) {
	for _, signal := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		s := scripttest.New(t, "bench-probes.sh", map[string]string{"unshare": waits("1")})
		cmd := s.Command(soon(t), []string{"SHORT=1"}, "bench-probes.sh")
		code, out := interrupted(t, s, cmd, func() {
			if err := cmd.Process.Signal(signal); err != nil {
				t.Error(err)
			}
		})
		if code != 130 || s.Read("stopped") != "stopped\n" {
			t.Errorf("after %s: exit code %d, and the measurement %q\n%s", signal, code, s.Read("stopped"), out)
		}
	}
}

// The exit code of the measurement is that of the script, and its table is shown.
func TestTheMeasurementOfProbesIsShown(t *testing.T) {
	s := scripttest.New(t, "bench-probes.sh", map[string]string{"unshare": "echo the table >out/bench/probes.md\n"})
	if code, out := s.Run([]string{"SHORT=1"}, "bench-probes.sh"); code != 0 || out != "the table\n" {
		t.Errorf("exit code %d: %q", code, out)
	}
	s.Program("bin/unshare", "exit 3\n")
	if code, out := s.Run([]string{"SHORT=1"}, "bench-probes.sh"); code != 3 || out != "" {
		t.Errorf("a failure: exit code %d: %q", code, out)
	}
}
