package hack_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
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

// Ctrl-C during a job ends the night: the job is no failed one, and the next does not begin.
func TestCtrlCEndsTheNight(t *testing.T) {
	s := newTree(t, "nightly.sh rows.sh netns.sh", map[string]string{
		"hitless": "printf 'kube-proxy\\t/x\\n'\n",
		"go":      "echo \"$@\" >>calls\n",
		"git":     "",
		"unshare": "case $* in *internal/routing*) exec sleep 600 ;; esac\n" + waits("1"),
	})
	s.write("hack/unit.sh", "#!/bin/sh\necho explore >>calls\n")
	cmd := s.command(soon(t), []string{"SUBSET=netns,explore"}, "nightly.sh")
	code, out := s.interrupted(cmd, typed(t, cmd))
	if calls := s.read("calls"); code != 130 || calls != "" || s.read("stopped") == "" {
		t.Errorf("exit code %d after the calls %q:\n%s", code, calls, out)
	}
}

// A job that was interrupted by itself ends the night too. make would end with exit code 2.
func TestAnInterruptedJobEndsTheNight(t *testing.T) {
	for _, job := range []string{"cross", "netns", "release-check", "explore"} {
		s := newTree(t, "nightly.sh rows.sh", map[string]string{"hitless": "", "go": "echo \"$@\" >>calls\n", "git": ""})
		for _, name := range []string{"cross", "netns", "release-check", "unit"} {
			s.write("hack/"+name+".sh", "#!/bin/sh\nexit 130\n")
		}
		s.write("hack/packages.sh", "#!/bin/sh\n")
		s.write("Makefile", "cross netns release-check:\n\t@hack/$@.sh\nexplore:\n\t@hack/unit.sh\n")
		code, out := s.run([]string{"SUBSET=" + job}, "nightly.sh")
		if calls := s.read("calls"); code != 130 || calls != "" || !strings.Contains(out, "interrupted") {
			t.Errorf("%s: exit code %d after the calls %q:\n%s", job, code, calls, out)
		}
	}
}

// Ctrl-C ends the lab tests, whichever exit code the tests in the foreground have then.
func TestCtrlCEndsTheLabTests(t *testing.T) {
	s := newTree(t, "lab-test.sh", map[string]string{"hitless": "", "chrt": ""})
	s.write("hack/prometheus.sh", "#!/bin/sh\n")
	s.write("hack/gotest.sh", "#!/bin/sh\ncase $* in *suites/kernels*) ;; *) exec sleep 600 ;; esac\n")
	s.write("hack/bench-probes.sh", "#!/bin/sh\n"+waits("1"))
	cmd := s.command(soon(t), nil, "lab-test.sh")
	if code, out := s.interrupted(cmd, typed(t, cmd)); code != 130 || s.read("stopped") == "" {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}

// An interrupt ends the measurement of the probe engine, which is a session of its own.
func TestAnInterruptEndsTheMeasurementOfProbes(t *testing.T) {
	for _, signal := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		s := newTree(t, "bench-probes.sh", map[string]string{"unshare": waits("1")})
		cmd := s.command(soon(t), []string{"SHORT=1"}, "bench-probes.sh")
		code, out := s.interrupted(cmd, func() {
			if err := cmd.Process.Signal(signal); err != nil {
				t.Error(err)
			}
		})
		if code != 130 || s.read("stopped") != "stopped\n" {
			t.Errorf("after %s: exit code %d, and the measurement %q\n%s", signal, code, s.read("stopped"), out)
		}
	}
}

// The exit code of the measurement is that of the script, and its table is shown.
func TestTheMeasurementOfProbesIsShown(t *testing.T) {
	s := newTree(t, "bench-probes.sh", map[string]string{"unshare": "echo the table >out/bench/probes.md\n"})
	if code, out := s.run([]string{"SHORT=1"}, "bench-probes.sh"); code != 0 || out != "the table\n" {
		t.Errorf("exit code %d: %q", code, out)
	}
	s.write("bin/unshare", "#!/bin/sh\nexit 3\n")
	if code, out := s.run([]string{"SHORT=1"}, "bench-probes.sh"); code != 3 || out != "" {
		t.Errorf("a failure: exit code %d: %q", code, out)
	}
}
