//go:build linux

package procs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Group is a control group (version 2): a set of processes with their resource usage. Future children of a process join its group.
type Group struct{ dir string }

const groupsAt = "/sys/fs/cgroup"

// mountGroups mounts the hierarchy.
var mountGroups = sync.OnceValue(func() error {
	if err := unix.Mount("cgroup2", groupsAt, "cgroup2", 0, ""); err != nil && !errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("mounting control groups: %w", err)
	}
	return nil
})

// AccountMemory makes later groups account memory. The kernel must have been started with that.
func AccountMemory() error {
	if err := mountGroups(); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(groupsAt, "cgroup.subtree_control"), []byte("+memory"), 0)
}

// NewGroup makes a group of that name, with subgroups.
func NewGroup(name string, subgroups ...string) (*Group, error) {
	if err := mountGroups(); err != nil {
		return nil, err
	}
	g := &Group{filepath.Join(groupsAt, name)}
	for _, sub := range append([]string{""}, subgroups...) {
		if err := os.Mkdir(filepath.Join(g.dir, sub), 0o755); err != nil {
			return nil, fmt.Errorf("making a control group: %w", err)
		}
	}
	return g, nil
}

// Sub is the subgroup of that name.
func (g *Group) Sub(name string) *Group { return &Group{filepath.Join(g.dir, name)} }

// Open opens the group's directory, in which a program can begin (CLONE_INTO_CGROUP). A nil group has none: nil.
func (g *Group) Open() (*os.File, error) {
	if g == nil {
		return nil, nil
	}
	dir, err := os.Open(g.dir)
	if err != nil {
		return nil, fmt.Errorf("opening a control group: %w", err)
	}
	return dir, nil
}

// Add adds a process.
func (g *Group) Add(pid int) error {
	return os.WriteFile(filepath.Join(g.dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
}

// Namespace makes a control group namespace with the group as its root. The kernel takes the root from the process that makes the
// namespace: one that begins in the group, stops before its first instruction, and is killed.
func (g *Group) Namespace() (*os.File, error) {
	dir, err := g.Open()
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	maker := exec.Command("/proc/self/exe")
	maker.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd()), Unshareflags: unix.CLONE_NEWCGROUP, Ptrace: true}
	runtime.LockOSThread() // the kernel ties the stopped process to the thread that starts it
	defer runtime.UnlockOSThread()
	if err := maker.Start(); err != nil {
		return nil, fmt.Errorf("making a control group namespace: %w", err)
	}
	made, err := os.Open(fmt.Sprintf("/proc/%d/ns/cgroup", maker.Process.Pid))
	if killed := maker.Process.Kill(); killed == nil {
		_ = maker.Wait() // it was killed
	} else {
		err = errors.Join(err, killed)
	}
	return made, err
}

// removeWithin bounds the time in which the processes of a group end after SIGKILL.
const removeWithin = 10 * time.Second

// Remove kills all processes of the group and of its subgroups, waits for their end, and removes the groups.
func (g *Group) Remove() error {
	events, err := os.Open(filepath.Join(g.dir, "cgroup.events"))
	if err != nil {
		return fmt.Errorf("removing a control group: %w", err)
	}
	defer events.Close()
	for end := time.Now().Add(removeWithin); ; {
		state := make([]byte, 256)
		n, err := events.ReadAt(state, 0)
		if n == 0 {
			return fmt.Errorf("reading the state of a control group: %w", err)
		}
		if bytes.Contains(state[:n], []byte("populated 0")) {
			break
		}
		if err := g.kill(); err != nil {
			return err
		}
		// The kernel reports a change of the state as an exception of the file (cgroup-v2, cgroup.events).
		left := time.Until(end)
		if left <= 0 {
			return fmt.Errorf("processes of the control group %s still run %s after SIGKILL", filepath.Base(g.dir), removeWithin)
		}
		if _, err := unix.Poll([]unix.PollFd{{Fd: int32(events.Fd()), Events: unix.POLLPRI}}, int(left.Milliseconds())+1); err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("waiting for the end of a control group: %w", err)
		}
	}
	dirs, err := g.directories()
	for _, dir := range slices.Backward(dirs) {
		err = errors.Join(err, os.Remove(dir))
	}
	return err
}

// kill sends SIGKILL to the processes of the group and of its subgroups.
func (g *Group) kill() error {
	dirs, err := g.directories()
	for _, dir := range dirs {
		list, listed := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		err = errors.Join(err, listed)
		for pid := range strings.FieldsSeq(string(list)) {
			n, _ := strconv.Atoi(pid) // the kernel writes numbers
			if killed := syscall.Kill(n, syscall.SIGKILL); killed != nil && !errors.Is(killed, syscall.ESRCH) {
				err = errors.Join(err, killed)
			}
		}
	}
	return err
}

// directories are those of the group and of its subgroups, a group before its subgroups.
func (g *Group) directories() (dirs []string, err error) {
	err = filepath.WalkDir(g.dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			dirs = append(dirs, path)
		}
		return err
	})
	return dirs, err
}
