//go:build linux

package site

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	kubernetes "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	clientapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/hitless/hitless/internal/cache"
	"github.com/hitless/hitless/internal/guest"
	"github.com/hitless/hitless/internal/input"
	"github.com/hitless/hitless/internal/progress"
	"github.com/hitless/hitless/lab/host"
	"github.com/hitless/hitless/lab/subject"
	"github.com/hitless/hitless/lab/vm"
)

// HoldLab brings a lab up, in namespaces of this machine's kernel or in a VM, and keeps it until ctx ends, as a cluster for other programs.
// When it is up, its kubeconfig is in the file, and up is called. Only that file is left behind.
func HoldLab(ctx context.Context, c Call, o LabOptions, plan guest.Plan, spec subject.Spec, file string, up func()) error {
	if err := CheckHostPlatform(); err != nil {
		return err
	}
	if err := checkLabFile(ctx, file); err != nil {
		return err
	}
	l := &lab{Call: c, LabOptions: o, plan: plan, spec: spec}
	hold := l.holdInVM
	if l.Kernel == guest.KernelHost {
		hold = l.holdOnHost
		if err := TryHost(ctx, l.Program, l.hostNeeds(), l.fetchTools); err != nil {
			return Usagef("a lab of %s on this machine's kernel: %w; or use --kernel vm", spec, err)
		}
	}
	if err := l.checkMachine(); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listening for the lab's API: %w", err)
	}
	api, err := listener.(*net.TCPListener).File()
	listener.Close() // File returned a duplicate
	if err != nil {
		return fmt.Errorf("passing the listener for the lab's API: %w", err)
	}
	defer api.Close()
	wasUp := false
	err = hold(ctx, api, func(ready guest.LabReady, client int) error {
		if err := writeKubeconfig(ready, listener.Addr().String(), client, file); err != nil {
			return err
		}
		wasUp = true
		up()
		return nil
	})
	switch {
	case !wasUp:
		return err
	case ctx.Err() != nil:
		return nil
	}
	return fmt.Errorf("the lab ended: %w", err)
}

// labIsUp is called when a lab is up, with a descriptor of its client's network namespace. An error ends the lab.
type labIsUp func(message guest.LabReady, client int) error

// holdInVM keeps the lab in a VM until ctx ends. The error says why it ended.
func (l *lab) holdInVM(ctx context.Context, api *os.File, up labIsUp) error {
	if _, err := QEMUVersion(ctx); err != nil {
		return err
	}
	l.Clock = "real"
	v := &VM{lab: l}
	packed, err := v.Pack(ctx)
	if err != nil {
		return err
	}
	var seed [8]byte
	if _, err := rand.Read(seed[:]); err != nil { // else everybody could know the keys of the lab
		return fmt.Errorf("choosing the seed of the VM's random numbers: %w", err)
	}
	l.plan.Seed = int64(binary.LittleEndian.Uint64(seed[:]))
	data, err := l.plan.Marshal()
	if err != nil {
		return err
	}
	outside, err := host.NewOutside(filepath.Clean(l.Program), hostOutside, api)
	if err != nil {
		return err
	}
	defer outside.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	boot := vm.Boot{Kernel: packed.Kernel, Initrd: packed.Boot.File, Files: packed.Files.File, Plan: data, MemoryMB: l.memoryMB(), RealTime: true,
		Standing: &vm.Standing{Tap: outside.Tap, CPUs: min(runtime.NumCPU(), standingCPUs)}}
	boot.Line = func(line string, region []byte) {
		if l.guestLine(line).Kind != progress.Checkpoint {
			return
		}
		message, err := readReady(region)
		if err == nil {
			err = outside.Serve(message.Server)
		}
		if err == nil {
			err = up(message, int(outside.Namespace.Fd()))
		}
		if err != nil {
			cancel(err)
		}
	}
	l.message(fmt.Sprintf("booting %s with %d MB and the real clock, with which nothing can be repeated", packed.Kernel.Release, boot.MemoryMB))
	outcome, err := vm.Run(ctx, boot)
	return reasonOf(outcome, err)
}

// standingCPUs is the most CPUs of the VM of a standing lab: a kernel with more spends its time on their locks.
const standingCPUs = 4

// readReady reads the message of a guest whose lab is up.
func readReady(region []byte) (message guest.LabReady, err error) {
	for r := vm.NewFrameReader(region); ; {
		kind, payload, err := r.Next()
		if err != nil {
			return message, fmt.Errorf("reading the message of the lab: %w", err)
		}
		if kind != vm.FrameFile {
			continue
		}
		if name, text, err := vm.ParseFile(payload); err == nil && name == guest.ReadyFile {
			return message, json.Unmarshal(text, &message)
		}
	}
}

// reasonOf is the reason why a guest ended: its own, where it had one.
func reasonOf(outcome *vm.Outcome, err error) error {
	if outcome == nil {
		return err
	}
	defer outcome.Close()
	if end, unread := readEnding(outcome.Region); err == nil && unread == nil && end.reason != "" {
		return errors.New(end.reason)
	}
	if err == nil {
		err = &InvalidError{earlyEnd(outcome.Console), lastLines(outcome.Console, 20)}
	}
	return err
}

// holdOnHost keeps the lab in namespaces of this machine's kernel until ctx ends. The error says why it ended.
func (l *lab) holdOnHost(ctx context.Context, api *os.File, up labIsUp) error {
	l.plan.Kernel = guest.KernelHost
	img := vm.NewImage()
	if err := addHitless(img, l.Program, ""); err != nil {
		return err
	}
	if err := l.addPrograms(ctx, img); err != nil {
		return err
	}
	data, err := l.plan.Marshal()
	if err != nil {
		return err
	}
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("making the socket to the lab: %w", err)
	}
	told, theirs := os.NewFile(uintptr(ends[0]), "ready"), os.NewFile(uintptr(ends[1]), "lab")
	defer told.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan error, 1)
	go func() {
		outcome, err := host.Run(ctx, host.Job{Program: filepath.Clean(l.Program), Args: hostInit, Files: img.Files(), Plan: data,
			Pass: []*os.File{api, theirs}, Line: func(line string) { l.guestLine(line) }})
		theirs.Close() // ends the reader of told
		done <- reasonOf(outcome, err)
	}()
	message, client, err := receiveReady(told)
	if err == nil {
		err = up(message, client)
	}
	if err == nil {
		return <-done
	}
	// A lab that failed has sent nothing; its error is the reason.
	select {
	case failed := <-done:
		return failed
	case <-time.After(time.Second):
		cancel(err)
		return <-done
	}
}

// receiveReady waits until a lab on the host is up, and returns its message and a descriptor of its client's network namespace, which stays
// open until this process ends.
func receiveReady(socket *os.File) (message guest.LabReady, client int, err error) {
	data, rights := make([]byte, 64<<10), make([]byte, unix.CmsgSpace(4))
	n, m, _, _, err := unix.Recvmsg(int(socket.Fd()), data, rights, unix.MSG_CMSG_CLOEXEC)
	for errors.Is(err, unix.EINTR) {
		n, m, _, _, err = unix.Recvmsg(int(socket.Fd()), data, rights, unix.MSG_CMSG_CLOEXEC)
	}
	if err == nil {
		err = json.Unmarshal(data[:n], &message)
	}
	if err != nil {
		return message, 0, fmt.Errorf("waiting for the lab: %w", err)
	}
	messages, err := unix.ParseSocketControlMessage(rights[:m])
	var fds []int
	if err == nil && len(messages) == 1 {
		fds, err = unix.ParseUnixRights(&messages[0])
	}
	if err == nil && len(fds) != 1 {
		err = fmt.Errorf("its message has %d control messages and %d descriptors instead of one", len(messages), len(fds))
	}
	if err != nil {
		return message, 0, fmt.Errorf("the lab sent no namespace: %w; start it again, or with --kernel vm", err)
	}
	return message, fds[0], nil
}

// writeKubeconfig writes a lab's kubeconfig with the address at which this machine reaches its API, and with an extension that locates its
// client's network.
func writeKubeconfig(ready guest.LabReady, address string, client int, file string) error {
	config, err := clientcmd.Load(ready.Kubeconfig)
	if err != nil {
		return fmt.Errorf("reading the lab's kubeconfig: %w", err)
	}
	for _, c := range config.Clusters {
		u, err := url.Parse(c.Server)
		if err != nil {
			return fmt.Errorf("reading the lab's kubeconfig: %w", err)
		}
		u.Host = address
		c.Server = u.String()
	}
	namespaces, err := namespacesOf(client)
	if err != nil {
		return err
	}
	text, err := json.Marshal(namespaces)
	if err != nil {
		return err
	}
	config.Extensions[namespaceExtension] = &kubernetes.Unknown{Raw: text, ContentType: kubernetes.ContentTypeJSON}
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		return Usagef("writing the lab's kubeconfig: %w; give another file with --kubeconfig", err)
	}
	return nil
}

// namespaceExtension is the kubeconfig's extension that holds labNamespaces.
const namespaceExtension = "hitless-lab"

// labNamespaces are the namespaces of the lab's client, as descriptors in a process. User is -1 for the process's own.
type labNamespaces struct {
	Pid  int `json:"pid"`
	Net  int `json:"net"`
	User int `json:"user"`
}

// namespacesOf are a network namespace of this process's descriptor, and the user namespace that owns it (ioctl_ns(2)).
func namespacesOf(net int) (n labNamespaces, err error) {
	n = labNamespaces{Pid: os.Getpid(), Net: net, User: -1}
	user, err := unix.IoctlRetInt(n.Net, unix.NS_GET_USERNS)
	if err != nil {
		return n, fmt.Errorf("reading the owner of the lab's network: %w", err)
	}
	var own, theirs unix.Stat_t
	if err := errors.Join(unix.Stat("/proc/self/ns/user", &own), unix.Fstat(user, &theirs)); err != nil {
		return n, fmt.Errorf("reading the owner of the lab's network: %w", err)
	}
	if own.Ino != theirs.Ino {
		n.User = user
	}
	return n, nil
}

// checkLabFile refuses a file for a lab's kubeconfig that has another one, which the lab would overwrite, or that cannot be written.
func checkLabFile(ctx context.Context, file string) error {
	const advice = "; give another file with --kubeconfig"
	text, err := input.Read(ctx, file, input.TextBytes)
	switch {
	case errors.Is(err, os.ErrNotExist):
		dir := filepath.Dir(file)
		for _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) && dir != filepath.Dir(dir); _, err = os.Stat(dir) {
			dir = filepath.Dir(dir)
		}
		if err := cache.MayWrite(dir); err != nil {
			return Usagef("%s for the lab's kubeconfig cannot be written: %w"+advice, file, err)
		}
		return nil
	case err != nil:
		return Usagef("reading %s, where the lab's kubeconfig is to go: %w"+advice, file, err)
	}
	config, err := clientcmd.Load(text)
	if _, is := namespacesIn(config); len(text) > 0 && (err != nil || !is) {
		return Usagef("%s exists and was not written by `hitless lab up`, which would overwrite it"+advice, file)
	}
	if err := unix.Access(file, unix.W_OK); err != nil {
		return Usagef("%s for the lab's kubeconfig cannot be written: %w"+advice, file, err)
	}
	return nil
}

// namespacesIn are the namespaces that the kubeconfig of a lab has.
func namespacesIn(config *clientapi.Config) (n labNamespaces, is bool) {
	if config == nil {
		return n, false
	}
	known, is := config.Extensions[namespaceExtension].(*kubernetes.Unknown)
	is = is && json.Unmarshal(known.Raw, &n) == nil
	return n, is
}

// LabShell is the command line that runs a program in the network of a lab's client, with everything else of this machine. file is
// the kubeconfig that HoldLab wrote.
func LabShell(ctx context.Context, file string, command []string) ([]string, error) {
	text, err := input.Read(ctx, file, input.TextBytes)
	if err != nil {
		return nil, Usagef("reading the lab's kubeconfig: %w; `hitless lab up` writes it", err)
	}
	config, err := clientcmd.Load(text)
	if err != nil {
		return nil, Usagef("reading the lab's kubeconfig: %w; `hitless lab up` writes it", err)
	}
	n, is := namespacesIn(config)
	if !is {
		return nil, Usagef("%s is not the kubeconfig of a lab: `hitless lab up` writes one; other clusters need no shell", file)
	}
	descriptor := func(fd int) string { return fmt.Sprintf("/proc/%d/fd/%d", n.Pid, fd) }
	if link, err := os.Readlink(descriptor(n.Net)); err != nil || !strings.HasPrefix(link, "net:") {
		return nil, Usagef("the lab of %s is gone: process %d does not keep it any more; `hitless lab up` makes another", file, n.Pid)
	}
	words := []string{"nsenter", "--net=" + descriptor(n.Net)}
	if n.User >= 0 {
		words = append(words, "--user="+descriptor(n.User), "--preserve-credentials")
	}
	return append(append(words, "--"), command...), nil
}
