//go:build netns

package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// builtProgram is what `make build` makes. The doctor starts itself in namespaces, which a test cannot be.
func builtProgram(t *testing.T) string {
	t.Helper()
	program, err := filepath.Abs(filepath.Join("..", "..", "bin", "hitless"))
	if err == nil {
		_, err = os.Stat(program)
	}
	if err != nil {
		t.Fatalf("%v; `make netns` builds it", err)
	}
	return program
}

// doctorIn runs the doctor by a shell script, in which "$@" is the doctor, and returns the lines of findings by state.
func doctorIn(t *testing.T, script string, env ...string) (code int, lines map[string][]string, all string) {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command("sh", "-ec", script, "sh", builtProgram(t), "doctor")
	cmd.Env, cmd.Dir = append(append(os.Environ(), "HITLESS_CACHE="+filepath.Join(dir, "cache")), env...), dir
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("the doctor has left %v (%v)", entries, err)
	}
	lines = map[string][]string{}
	for line := range strings.Lines(out.String()) {
		state, rest, _ := strings.Cut(line, " ")
		lines[state] = append(lines[state], strings.TrimSpace(rest))
	}
	return cmd.ProcessState.ExitCode(), lines, out.String()
}

// onlyMissing are the missing findings that a script adds to those of this machine.
func onlyMissing(t *testing.T, before, after []string) (added []string) {
	t.Helper()
	for _, line := range after {
		name := line[:min(26, len(line))]
		known := false
		for _, b := range before {
			known = known || strings.HasPrefix(b, name)
		}
		if !known {
			added = append(added, line)
		}
	}
	return added
}

// standInProgram is a PATH in which a stand-in for a program comes first.
func standInProgram(t *testing.T, name, script string) (path string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return "PATH=" + dir + ":" + os.Getenv("PATH")
}

// Each lack is a line that says what to do, the exit code is 2, and nothing is left behind. The machine as it is is the twin: it has no such
// line.
func TestDoctorWhereSomethingIsMissing(t *testing.T) {
	small := t.TempDir()
	if err := unix.Mount("tmpfs", small, "tmpfs", 0, "size=64m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(small, 0) })
	readOnly := t.TempDir()
	if err := unix.Mount("tmpfs", readOnly, "tmpfs", unix.MS_RDONLY, "size=8g"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(readOnly, 0) })
	_, as, text := doctorIn(t, `exec "$@"`)
	t.Logf("this machine:\n%s", text)
	const noQEMU = `qemu=$(command -v qemu-system-x86_64) && mount --bind /dev/null "$qemu"; exec "$@"`
	for name, c := range map[string]struct {
		script string
		env    []string
		line   string // name of the finding
		says   []string
	}{
		"without QEMU":     {`unshare -m sh -ec '` + noQEMU + `' sh "$@"`, nil, "virtual machine", []string{"qemu-system-x86", "--install"}},
		"with an old QEMU": {`exec "$@"`, []string{standInProgram(t, "qemu-system-x86_64", "echo QEMU emulator version 5.2.0")}, "virtual machine", []string{"5.2", "7.2", "--kernel host"}},
		"with a QEMU without the machine": {`exec "$@"`, []string{standInProgram(t, "qemu-system-x86_64",
			`[ "$1" != --version ] || { echo QEMU emulator version 9.0.0; exit; }; echo "unsupported machine type q35" >&2; exit 1`)}, "virtual machine", []string{"9.0.0", "q35", "--kernel host"}},
		"without space for the cache":       {`exec "$@"`, []string{"HITLESS_CACHE=" + small + "/cache"}, "disk space, HITLESS_CACHE", []string{"2048 MB", "HITLESS_CACHE"}},
		"without space for temporary files": {`exec "$@"`, []string{"TMPDIR=" + small}, "disk space, TMPDIR", []string{"2048 MB", "TMPDIR"}},
		"with a read-only cache":            {`exec "$@"`, []string{"HITLESS_CACHE=" + readOnly + "/cache"}, "disk space, HITLESS_CACHE", []string{"read-only", "HITLESS_CACHE"}},
	} {
		t.Run(name, func(t *testing.T) {
			code, lines, text := doctorIn(t, c.script, c.env...)
			added := onlyMissing(t, as["missing"], lines["missing"])
			if code != exitUsage || len(added) != 1 || !strings.HasPrefix(added[0], c.line) {
				t.Fatalf("exit %d, missing are %q, want one line about %s:\n%s", code, added, c.line, text)
			}
			for _, part := range c.says {
				if !strings.Contains(added[0], part) {
					t.Errorf("the line does not say %q: %s", part, added[0])
				}
			}
		})
	}
	if entries, err := os.ReadDir(small); err != nil || len(entries) > 0 {
		t.Errorf("%v are left on the small disk (%v)", entries, err)
	}
}

// container runs a program as an unprivileged container does: with a small /dev, no namespaces of its own, few capabilities.
const container = `exec unshare -Urmpn --mount-proc --fork sh -ec '
mount -t tmpfs -o mode=755 dev /mnt
for device in null zero urandom random full tty; do touch /mnt/$device; mount --bind /dev/$device /mnt/$device; done
mount --rbind /mnt /dev
for kind in user mnt net pid ipc uts cgroup; do echo 0 > /proc/sys/user/max_${kind}_namespaces; done
exec setpriv --no-new-privs --bounding-set=-all --inh-caps=-all "$@"' sh "$@"`

// An unprivileged container, and another user than root, run a lab in a VM, so that nothing more is missing there. Notes say what they
// cannot do, and how to get it.
func TestDoctorWithFewRights(t *testing.T) {
	code, as, _ := doctorIn(t, `exec "$@"`)
	inside, lines, text := doctorIn(t, container)
	if inside != code || len(onlyMissing(t, as["missing"], lines["missing"])) > 0 {
		t.Errorf("exit %d, outside %d; missing are %q, outside %q", inside, code, lines["missing"], as["missing"])
	}
	notes := strings.Join(lines["note"], "\n")
	for _, part := range []string{"priorities", "different histories", "host kernel", "privileged mode"} {
		if !strings.Contains(notes, part) {
			t.Errorf("no note says %q:\n%s", part, text)
		}
	}
}

// otherRoot is a script that runs the doctor in a chroot with the directories of this machine. Its own mounts end with it.
const otherRoot = `exec unshare -m sh -ec '
mount -t tmpfs root /mnt
for entry in /*; do
  if [ -L "$entry" ]; then cp -P "$entry" /mnt/
  elif [ -d "$entry" ] && [ "$entry" != /mnt ]; then mkdir "/mnt$entry"; mount --rbind "$entry" "/mnt$entry"; fi
done
exec chroot /mnt "$@"' sh "$@"`

// A lab on this machine's kernel would leave a chroot, so it is refused there, and nothing else is. This machine is the twin.
func TestDoctorInAChroot(t *testing.T) {
	code, as, _ := doctorIn(t, `exec "$@"`)
	inside, lines, text := doctorIn(t, otherRoot)
	if inside != code || len(onlyMissing(t, as["missing"], lines["missing"])) > 0 {
		t.Errorf("exit %d, outside %d; missing are %q, outside %q", inside, code, lines["missing"], as["missing"])
	}
	if here, there := strings.Join(as["note"], "\n"), strings.Join(lines["note"], "\n"); strings.Contains(here, "chroot") || !strings.Contains(there, "chroot") {
		t.Errorf("the notes are\n%s\nin the chroot, and\n%s\noutside", text, here)
	}
}
