//go:build linux

package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/lab/vm"
)

// regionFd is the descriptor of the region in the first process and in the runner.
const regionFd = 3

// FirstPassed is the descriptor of the first of Job.Pass in the runner.
const FirstPassed = regionFd + 1

// passedVariable is the environment variable with the number of files after the region.
const passedVariable = "HITLESS_PASSED"

// passedFiles returns the files for the runner, the region first, and removes the variable from the guest's
// environment.
func passedFiles() []*os.File {
	files := []*os.File{os.NewFile(regionFd, "region")}
	more, _ := strconv.Atoi(os.Getenv(passedVariable)) // 0 when unset
	os.Unsetenv(passedVariable)
	for i := range more {
		files = append(files, os.NewFile(uintptr(FirstPassed+i), "passed"))
	}
	return files
}

// refusedCode is the exit code of a first process that has namespaces without the rights in them; some systems
// restrict unknown programs so (AppArmor).
const refusedCode = 77

// Init is the first process of the namespaces. It builds the guest's root from the list of files on standard input,
// leaves this machine's root, starts the runner and reaps orphans. When it ends, the kernel kills the remaining
// processes.
func Init(runner string, args ...string) error {
	if os.Getpid() != 1 {
		return errors.New("this command is the first process of a guest; only hitless calls it")
	}
	data, err := io.ReadAll(os.Stdin)
	if err != nil {
		return fmt.Errorf("reading the list of the guest's files: %w", err)
	}
	var files []vm.File
	if err := json.Unmarshal(data, &files); err != nil {
		return fmt.Errorf("reading the list of the guest's files: %w", err)
	}
	if err := enterRoot(files); err != nil {
		err = fmt.Errorf("building the guest's root: %w", err)
		if errors.Is(err, os.ErrPermission) {
			fmt.Println(err)
			os.Exit(refusedCode)
		}
		return err
	}
	// The default host name, as in the VM.
	if err := unix.Sethostname([]byte("(none)")); err != nil {
		return fmt.Errorf("setting the host name of the guest: %w", err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return fmt.Errorf("opening the guest's null device: %w", err)
	}
	os.Stdin = null
	return vm.RunAndReap(runner, args, passedFiles()...)
}

// OpenRegion maps the region inside the guest.
func OpenRegion() ([]byte, error) {
	f := os.NewFile(regionFd, "region")
	defer f.Close()
	return vm.MapRegion(f)
}

// root is the mount point of the guest's root: a directory that every Linux has and that holds no file for a guest.
// The mount namespace hides the mount from the rest of the machine, and no directory has to be created and removed.
const root = "/sys"

func enterRoot(files []vm.File) error {
	if err := checkRoot(); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	if err := mount("tmpfs", root, "size=16m,mode=755"); err != nil {
		return err
	}
	for _, dir := range vm.Folders {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return err
		}
	}
	for _, f := range files {
		if err := addFile(f); err != nil {
			return fmt.Errorf("%s: %w", f.Guest, err)
		}
	}
	for _, name := range []string{"null", "zero", "full", "random", "urandom"} {
		if err := bind("/dev/"+name, filepath.Join(root, "dev", name)); err != nil {
			return err
		}
	}
	// The old /proc must still be mounted: the kernel requires a fully visible one for a new mount
	// (mount_namespaces(7)).
	if err := mountProc(filepath.Join(root, "proc")); err != nil {
		return err
	}
	// A node's /sys needs a visible one too (package topology). It is read-only: see mountProc.
	if err := unix.Mount("sysfs", filepath.Join(root, "sys"), "sysfs", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil && !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("mounting /sys: %w", err)
	}
	for _, m := range []struct{ at, options string }{{"tmp", "size=75%"}, {"run", "size=50%"}} {
		if err := mount("tmpfs", filepath.Join(root, m.at), m.options); err != nil {
			return err
		}
	}
	return pivot()
}

// checkRoot refuses a chroot: each entry into the mount namespace of a node would leave it, to the root of the machine.
func checkRoot() error {
	before, err := os.Stat("/")
	if err != nil {
		return err
	}
	own, err := os.Open("/proc/self/ns/mnt")
	if err != nil {
		return err
	}
	defer own.Close()
	after := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread has another root
		err := unix.Unshare(unix.CLONE_FS)
		if err == nil {
			err = unix.Setns(int(own.Fd()), unix.CLONE_NEWNS)
		}
		if err != nil {
			after <- fmt.Errorf("looking for the root of the mount namespace: %w", err)
			return
		}
		root, err := os.Stat("/")
		if err == nil && !os.SameFile(before, root) {
			err = errors.New("this process is in a chroot, where a lab on this machine's kernel cannot run: its nodes would see the files of the whole machine; use a container, or pivot_root instead of chroot")
		}
		after <- err
	}()
	return <-after
}

func mount(kind, at, options string) error {
	if err := unix.Mount(kind, at, kind, unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return fmt.Errorf("mounting a %s on %s: %w", kind, at, err)
	}
	return nil
}

// addFile adds one file to the root. Files of this machine are bind-mounted, because programs are large.
func addFile(f vm.File) error {
	at := filepath.Join(root, f.Guest)
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return err
	}
	switch {
	case f.Link != "":
		return os.Symlink(f.Link, at)
	case f.Host == "":
		return os.WriteFile(at, []byte(f.Text), f.Mode)
	}
	if err := bind(f.Host, at); err != nil {
		return err
	}
	return readOnly(at)
}

func bind(from, at string) error {
	f, err := os.OpenFile(at, os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	f.Close()
	if err := unix.Mount(from, at, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("binding %s: %w", from, err)
	}
	return nil
}

func readOnly(at string) error {
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	if err := unix.MountSetattr(unix.AT_FDCWD, at, 0, &attr); err != nil {
		return fmt.Errorf("making %s read-only: %w (it needs Linux 5.12)", strings.TrimPrefix(at, root), err)
	}
	return nil
}

// mountProc mounts the /proc of the new PID namespace. Everything in it outside the network namespace is global to
// this machine and becomes read-only: root of a user namespace may be the owner of these files.
func mountProc(at string) error {
	if err := unix.Mount("proc", at, "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mounting /proc: %w", err)
	}
	network := filepath.Join(at, "sys/net")
	if err := unix.Mount(network, network, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("binding /proc/sys/net: %w", err)
	}
	for _, name := range []string{"sys", "sysrq-trigger", "irq", "bus", "fs"} {
		path := filepath.Join(at, name)
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err := unix.Mount(path, path, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("binding /proc/%s: %w", name, err)
		}
		if err := readOnly(path); err != nil {
			return err
		}
	}
	return nil
}

// pivot makes the new root the only one: it stacks the old root on top and unmounts it (pivot_root(2)).
func pivot() error {
	if err := os.Chdir(root); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("changing the root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leaving this machine's root: %w", err)
	}
	return os.Chdir("/")
}
