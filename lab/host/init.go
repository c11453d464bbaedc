package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/lab/vm"
)

// regionFd is the descriptor of the region in the first process and in the runner.
const regionFd = 3

// FirstPassed is the descriptor of the first of Job.Pass in the runner.
const FirstPassed = regionFd + 1

// passedVariable tells the first process how many files follow the region.
const passedVariable = "HITLESS_PASSED"

// passed are the files for the runner, the region first. What was told of them is not for the guest.
func passed() []*os.File {
	files := []*os.File{os.NewFile(regionFd, "region")}
	more, _ := strconv.Atoi(os.Getenv(passedVariable)) // 0 when it is not there
	os.Unsetenv(passedVariable)
	for i := range more {
		files = append(files, os.NewFile(uintptr(FirstPassed+i), "passed"))
	}
	return files
}

// refusedCode is the exit code of a first process that was given namespaces, but not the rights in them: what some
// systems do to programs that they do not know.
const refusedCode = 77

// Init is the first process of the namespaces: it builds the guest's root out of the list of files on standard input,
// leaves this machine's root, starts the runner there and reaps what nobody waits for. When it ends, the kernel ends
// everything else.
func Init(runner string, args ...string) error {
	if os.Getpid() != 1 {
		return errors.New("this command is the first process of a guest; hitless calls it itself")
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
	// The name that a machine has before anybody names it, as in the VM.
	if err := unix.Sethostname([]byte("(none)")); err != nil {
		return fmt.Errorf("naming the guest: %w", err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return fmt.Errorf("opening the guest's null device: %w", err)
	}
	os.Stdin = null
	return vm.RunAndReap(runner, args, passed()...)
}

// OpenRegion maps the region inside the guest.
func OpenRegion() ([]byte, error) {
	f := os.NewFile(regionFd, "region")
	defer f.Close()
	return vm.MapRegion(f)
}

// root is where the guest's root is built: a folder that every Linux has, that no file of a guest comes from, and that
// nobody outside the mount namespace sees change. So no folder has to be made, and none can be left behind.
const root = "/sys"

func enterRoot(files []vm.File) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("parting from this machine's mounts: %w", err)
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
		if err := place(f); err != nil {
			return fmt.Errorf("%s: %w", f.Guest, err)
		}
	}
	for _, name := range []string{"null", "zero", "full", "random", "urandom"} {
		if err := bind("/dev/"+name, filepath.Join(root, "dev", name)); err != nil {
			return err
		}
	}
	// While the old /proc is in sight: the kernel gives a new one only to those who see all of one (mount_namespaces(7)).
	if err := mountProc(filepath.Join(root, "proc")); err != nil {
		return err
	}
	for _, m := range []struct{ at, options string }{{"tmp", "size=75%"}, {"run", "size=50%"}} {
		if err := mount("tmpfs", filepath.Join(root, m.at), m.options); err != nil {
			return err
		}
	}
	return pivot()
}

func mount(kind, at, options string) error {
	if err := unix.Mount(kind, at, kind, unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return fmt.Errorf("mounting a %s on %s: %w", kind, at, err)
	}
	return nil
}

// place puts one file into the root. A file of this machine is bound, not copied: programs are large.
func place(f vm.File) error {
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

// mountProc mounts the /proc of the new process namespace. What is not of the network namespace is this machine's own,
// and must not change: root in a user namespace may still be the user who owns these files.
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

// pivot makes the new root the only one: the old one is put on top of it and taken away (pivot_root(2)).
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
