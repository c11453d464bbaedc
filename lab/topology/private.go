//go:build linux

package topology

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/lab/procs"
)

// private is what a node has for itself besides its network: /run, /var/run, /var/lib, /sys with the BPF file system, and in a kernel
// of the lab's own a control group. It outlives the node's processes, and ends when the node loses power.
type private struct {
	mu     sync.RWMutex // write-locked while the files are replaced
	mounts *os.File     // mount namespace; nil while the node has no power
	groups *os.File     // control group namespace, whose root is group; nil without groups
	group  *procs.Group // nil without groups
}

// The subgroups of a node's control group. A kubelet of the lab is a goroutine of the lab's process, and in none of them.
const (
	GroupProxy  = "proxy"
	GroupPods   = "pods"
	GroupSystem = "system" // other programs of the node, such as clients and commands
)

// Boot gives a node its files and, in a kernel of the lab's own, its control group. Create and Rebuild do that.
func (n *Node) Boot(cfg Config) error {
	var fresh private
	if cfg.OwnKernel {
		group, err := procs.NewGroup(n.Name, GroupProxy, GroupPods, GroupSystem)
		if err != nil {
			return fmt.Errorf("giving %s a control group: %w", n.Name, err)
		}
		fresh.group = group
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread has changed its namespaces
		done <- fresh.make(n.Namespace, cfg)
	}()
	if err := <-done; err != nil {
		return fmt.Errorf("giving %s files of its own: %w", n.Name, errors.Join(err, fresh.close()))
	}
	n.own.mu.Lock()
	defer n.own.mu.Unlock()
	n.own.mounts, n.own.groups, n.own.group = fresh.mounts, fresh.groups, fresh.group
	return nil
}

// Discard removes the files of the node and its control group with every process in it, as a loss of power does. Nothing can be
// started on the node before the next Boot.
func (n *Node) Discard() error {
	n.ports.mu.Lock()
	n.ports.all = nil // their table ends with the network
	n.ports.mu.Unlock()
	if err := n.own.close(); err != nil {
		return fmt.Errorf("removing the files and processes of %s: %w", n.Name, err)
	}
	return nil
}

func (p *private) make(net *Namespace, cfg Config) (err error) {
	if p.group != nil {
		if p.groups, err = p.group.Namespace(); err != nil {
			return err
		}
		if err := unix.Setns(int(p.groups.Fd()), unix.CLONE_NEWCGROUP); err != nil { // what the mount of cgroup2 shows
			return err
		}
	}
	if err := net.enter(); err != nil {
		return err
	}
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("creating a mount namespace: %w (root or a user namespace is needed)", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	if err := mountNode(cfg.OwnKernel, p.group != nil); err != nil {
		return err
	}
	if _, err := os.Stat(cfg.Files); cfg.Files != "" && err == nil {
		if err := os.CopyFS("/", os.DirFS(cfg.Files)); err != nil {
			return fmt.Errorf("copying the node's files from %s: %w", cfg.Files, err)
		}
	}
	p.mounts, err = openNamespace("mnt")
	return err
}

// openNamespace opens a namespace of the calling thread.
func openNamespace(kind string) (*os.File, error) {
	return os.Open(fmt.Sprintf("/proc/self/task/%d/ns/%s", unix.Gettid(), kind))
}

// mountNode mounts a node's own file systems in the thread's mount namespace.
func mountNode(writable, groups bool) error {
	for _, dir := range append([]string{"/var/run"}, nodeDirs...) {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	for _, dir := range nodeDirs {
		if err := mount("tmpfs", dir, 0, "mode=755"); err != nil {
			return err
		}
	}
	if info, err := os.Lstat("/var/run"); err != nil || info.IsDir() {
		if err := unix.Mount("/run", "/var/run", "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("binding /var/run: %w", err)
		}
	}
	if err := mountSysfs(writable); err != nil {
		return err
	}
	if err := mountBPF(); err != nil {
		return err
	}
	if groups {
		return mount("cgroup2", "/sys/fs/cgroup", 0, "")
	}
	return nil
}

// mountSysfs mounts a /sys with the network devices of the thread's network namespace. Where the kernel refuses that, as in
// containers that hide parts of /sys, it is empty.
func mountSysfs(writable bool) error {
	var flags uintptr = unix.MS_RDONLY
	if writable {
		flags = 0
	}
	err := mount("sysfs", "/sys", flags, "")
	if !errors.Is(err, unix.EPERM) {
		return err
	}
	if err := mount("tmpfs", "/sys", 0, "mode=755"); err != nil {
		return err
	}
	return os.MkdirAll("/sys/fs/bpf", 0o755)
}

// mountBPF mounts the BPF file system. Kernels without BPF have none, and user namespaces may have no right to it.
func mountBPF() error {
	err := mount("bpf", "/sys/fs/bpf", 0, "mode=700")
	for _, known := range []error{unix.ENODEV, unix.ENOENT, unix.EPERM} {
		if errors.Is(err, known) {
			return nil
		}
	}
	return err
}

// Mount mounts a file system of the kernel on a directory of the node, which is made if it is missing. It ends with the node's power.
func (n *Node) Mount(kind, at string) error {
	return n.Inside(func() error {
		if err := os.MkdirAll(at, 0o755); err != nil {
			return fmt.Errorf("mounting %s on %s of %s: %w", kind, at, n.Name, err)
		}
		if err := mount(kind, at, 0, ""); err != nil {
			return fmt.Errorf("%w (%s)", err, n.Name)
		}
		return nil
	})
}

func mount(kind, at string, flags uintptr, options string) error {
	if kind != "tmpfs" { // which may have programs
		flags |= unix.MS_NOEXEC
	}
	if err := unix.Mount(kind, at, kind, flags|unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return fmt.Errorf("mounting %s on %s: %w", kind, at, err)
	}
	return nil
}

// enter moves the calling thread into the node's mount and control group namespaces, and leave moves it back. The thread must end with
// its goroutine, also after an error.
func (p *private) enter() (leave func() error, err error) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.mounts == nil {
		return nil, errors.New("it has no power")
	}
	if err := unix.Unshare(unix.CLONE_FS); err != nil { // a thread that shares its root directory cannot change it
		return nil, fmt.Errorf("leaving the root directory of the lab: %w", err)
	}
	leave = func() error { return nil }
	for _, to := range []struct {
		kind string
		file *os.File
		flag int
	}{{"cgroup", p.groups, unix.CLONE_NEWCGROUP}, {"mnt", p.mounts, unix.CLONE_NEWNS}} {
		if to.file == nil {
			continue
		}
		home, err := openNamespace(to.kind)
		if err != nil {
			return nil, err
		}
		if err := unix.Setns(int(to.file.Fd()), to.flag); err != nil {
			return nil, errors.Join(err, home.Close())
		}
		before := leave
		leave = func() error { return errors.Join(unix.Setns(int(home.Fd()), to.flag), home.Close(), before()) }
	}
	return leave, nil
}

// close kills the processes of the control group, and removes it and the files. A process without a group keeps its view until it ends.
func (p *private) close() (err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range []*os.File{p.mounts, p.groups} {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}
	if p.group != nil {
		err = errors.Join(err, p.group.Remove())
	}
	p.mounts, p.groups, p.group = nil, nil, nil
	return err
}

// subgroup is the subgroup of a name; nil without groups.
func (p *private) subgroup(name string) *procs.Group {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.group == nil {
		return nil
	}
	return p.group.Sub(name)
}
