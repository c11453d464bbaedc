//go:build linux

package site

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hitless/hitless/internal/guest"
	"github.com/hitless/hitless/internal/input"
	"github.com/hitless/hitless/lab/host"
	"github.com/hitless/hitless/lab/subject"
	"github.com/hitless/hitless/lab/vm"
)

// HoldLab brings a lab up in namespaces of this machine's kernel and keeps it until ctx ends, as a cluster for other programs. When
// it is up, its kubeconfig is in the file, and up is called. Only that file is left behind.
func HoldLab(ctx context.Context, c Call, o LabOptions, plan guest.Plan, spec subject.Spec, file string, up func()) error {
	if err := CheckHostPlatform(); err != nil {
		return err
	}
	l := &lab{Call: c, LabOptions: o, plan: plan, spec: spec}
	l.plan.Kernel, l.Kernel = guest.KernelHost, "host"
	if err := TryHost(ctx, l.Program, l.hostNeeds(), l.fetchTools); err != nil {
		return Usagef("a lab of %s on this machine's kernel: %w", spec, err)
	}
	if err := l.checkMachine(); err != nil {
		return err
	}
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
	pass, ready, err := passedToLab()
	if err != nil {
		return err
	}
	defer ready.Close()
	done := make(chan error, 1)
	go func() {
		outcome, err := host.Run(ctx, host.Job{Program: filepath.Clean(l.Program), Args: hostInit, Files: img.Files(), Plan: data,
			Pass: pass, Line: func(line string) { l.guestLine(line) }})
		for _, f := range pass {
			f.Close() // ends the reader of ready
		}
		if outcome != nil {
			defer outcome.Close()
			if end, unread := readEnding(outcome.Region); err == nil && unread == nil && end.reason != "" {
				err = errors.New(end.reason)
			}
		}
		done <- err
	}()
	if err := accept(ready, file); err != nil {
		// A lab that failed has sent nothing; its error is the reason.
		select {
		case failed := <-done:
			return errors.Join(failed, ctx.Err())
		case <-time.After(time.Second):
			return err
		}
	}
	up()
	if err := <-done; !errors.Is(err, context.Canceled) {
		return fmt.Errorf("the lab ended: %w", err)
	}
	return nil
}

// passedToLab makes the files that the lab's runner gets (see guest.LabScenario), and the other end of the socket.
func passedToLab() (pass []*os.File, ready *os.File, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, fmt.Errorf("listening for the lab's API: %w", err)
	}
	defer listener.Close() // File returns a duplicate
	file, err := listener.(*net.TCPListener).File()
	if err != nil {
		return nil, nil, fmt.Errorf("passing the listener for the lab's API: %w", err)
	}
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("making the socket to the lab: %w", err)
	}
	return []*os.File{file, os.NewFile(uintptr(ends[1]), "lab")}, os.NewFile(uintptr(ends[0]), "ready"), nil
}

// accept waits until the lab is up, and writes its kubeconfig with an extension that locates the client's network.
func accept(socket *os.File, file string) error {
	data, rights := make([]byte, 64<<10), make([]byte, unix.CmsgSpace(4))
	n, m, _, _, err := unix.Recvmsg(int(socket.Fd()), data, rights, unix.MSG_CMSG_CLOEXEC)
	for errors.Is(err, unix.EINTR) {
		n, m, _, _, err = unix.Recvmsg(int(socket.Fd()), data, rights, unix.MSG_CMSG_CLOEXEC)
	}
	var ready guest.LabReady
	if err == nil {
		err = json.Unmarshal(data[:n], &ready)
	}
	if err != nil {
		return fmt.Errorf("waiting for the lab: %w", err)
	}
	namespaces, err := clientNamespaces(rights[:m])
	if err != nil {
		return err
	}
	config, err := clientcmd.Load(ready.Kubeconfig)
	if err != nil {
		return fmt.Errorf("reading the lab's kubeconfig: %w", err)
	}
	text, err := json.Marshal(namespaces)
	if err != nil {
		return err
	}
	config.Extensions[namespaceExtension] = &runtime.Unknown{Raw: text, ContentType: runtime.ContentTypeJSON}
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

// clientNamespaces reads the client's network namespace from a message, and the user namespace that owns it (ioctl_ns(2)). Both
// stay open until this process ends.
func clientNamespaces(rights []byte) (n labNamespaces, err error) {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil || len(messages) != 1 {
		return n, fmt.Errorf("the lab sent no namespace: %w", errors.Join(err, errors.ErrUnsupported))
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return n, fmt.Errorf("the lab sent no namespace: %w", err)
	}
	n = labNamespaces{Pid: os.Getpid(), Net: fds[0], User: -1}
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
	var n labNamespaces
	known, is := config.Extensions[namespaceExtension].(*runtime.Unknown)
	if !is || json.Unmarshal(known.Raw, &n) != nil {
		return nil, Usagef("%s is not the kubeconfig of a lab: `hitless lab up` writes one; other clusters need no shell", file)
	}
	descriptor := func(fd int) string { return fmt.Sprintf("/proc/%d/fd/%d", n.Pid, fd) }
	if link, err := os.Readlink(descriptor(n.Net)); err != nil || len(link) < 4 || link[:4] != "net:" {
		return nil, Usagef("the lab of %s is gone: process %s does not keep it any more; `hitless lab up` makes another", file, strconv.Itoa(n.Pid))
	}
	words := []string{"nsenter", "--net=" + descriptor(n.Net)}
	if n.User >= 0 {
		words = append(words, "--user="+descriptor(n.User), "--preserve-credentials")
	}
	return append(append(words, "--"), command...), nil
}
