package run

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
	"github.com/hitless/hitless/lab/host"
	"github.com/hitless/hitless/lab/subject"
	"github.com/hitless/hitless/lab/vm"
	"github.com/hitless/hitless/scenarios"
)

// Lab brings a lab up in namespaces of this machine's kernel and keeps it until ctx ends: a cluster for others to use. When it
// is up, its kubeconfig stands in the file, and up is called. Nothing is left behind but that file, which then leads nowhere.
func Lab(ctx context.Context, o Options, file string, up func()) error {
	if err := o.fillDefaults(); err != nil {
		return err
	}
	o.Scenario, o.Kernel = guest.LabScenario, "host"
	if err := o.checkNumbers(); err != nil {
		return err
	}
	spec, err := subject.Parse(o.Subject)
	if err != nil {
		return UsageError{err}
	}
	params, err := scenarios.Scenario{Name: o.Scenario}.Fill(o.Set)
	if err != nil {
		return UsageError{err}
	}
	if _, given := o.Set[scenarios.TerminatingFallback.Key]; !given {
		params[scenarios.TerminatingFallback.Key] = spec.DefaultFallback()
	} else if err := spec.CheckFallback(params[scenarios.TerminatingFallback.Key]); err != nil {
		return UsageError{err}
	}
	plan := guest.Plan{Scenario: o.Scenario, Parameters: params, Seed: o.Seed, Subject: spec.String(), Exec: spec.Exec,
		ControlPlane: o.ControlPlane, Nodes: o.Nodes, Rate: o.Rate, Kernel: guest.KernelHost}
	if err := o.tryHost(ctx, needs(plan, spec)); err != nil {
		return usagef("a lab of %s on this machine's kernel: %w", spec, err)
	}
	if err := checkMachine(o, plan); err != nil {
		return err
	}
	return o.hold(ctx, plan, spec, file, up)
}

func (o Options) hold(ctx context.Context, plan guest.Plan, spec subject.Spec, file string, up func()) error {
	img := vm.NewImage()
	img.Add(guest.Program, o.Program, 0o755)
	if err := o.addPrograms(ctx, img, plan, spec); err != nil {
		return err
	}
	data, err := plan.Marshal()
	if err != nil {
		return err
	}
	pass, told, err := passedToLab()
	if err != nil {
		return err
	}
	defer told.Close()
	done := make(chan error, 1)
	go func() {
		outcome, err := host.Run(ctx, host.Job{Program: filepath.Clean(o.Program), Args: hostInit, Files: img.Files(), Plan: data,
			Pass: pass, Line: func(line string) { o.guestLine(line) }})
		for _, f := range pass {
			f.Close() // the reader of told has its end of file now at the latest
		}
		if outcome != nil {
			defer outcome.Close()
			if left, said := lastWord(outcome.Region); err == nil && said == nil && left.reason != "" {
				err = errors.New(left.reason)
			}
		}
		done <- err
	}()
	if err := accept(told, file); err != nil {
		// A lab that failed has said nothing; then why it failed is the reason.
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

// passedToLab makes what the lab's runner is passed, see guest.LabScenario, and the other end of the socket.
func passedToLab() (pass []*os.File, told *os.File, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, fmt.Errorf("listening for the lab's API: %w", err)
	}
	defer listener.Close() // the duplicate goes on
	file, err := listener.(*net.TCPListener).File()
	if err != nil {
		return nil, nil, fmt.Errorf("passing the listener for the lab's API: %w", err)
	}
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("making the socket to the lab: %w", err)
	}
	return []*os.File{file, os.NewFile(uintptr(ends[1]), "lab")}, os.NewFile(uintptr(ends[0]), "told"), nil
}

// accept waits until the lab is up, and writes its kubeconfig with an extension that says where the client's network is.
func accept(told *os.File, file string) error {
	data, rights := make([]byte, 64<<10), make([]byte, unix.CmsgSpace(4))
	n, m, _, _, err := unix.Recvmsg(int(told.Fd()), data, rights, unix.MSG_CMSG_CLOEXEC)
	for errors.Is(err, unix.EINTR) {
		n, m, _, _, err = unix.Recvmsg(int(told.Fd()), data, rights, unix.MSG_CMSG_CLOEXEC)
	}
	var ready guest.LabReady
	if err == nil {
		err = json.Unmarshal(data[:n], &ready)
	}
	if err != nil {
		return fmt.Errorf("waiting for the lab: %w", err)
	}
	place, err := placeOf(rights[:m])
	if err != nil {
		return err
	}
	config, err := clientcmd.Load(ready.Kubeconfig)
	if err != nil {
		return fmt.Errorf("reading the lab's kubeconfig: %w", err)
	}
	text, err := json.Marshal(place)
	if err != nil {
		return err
	}
	config.Extensions[placeExtension] = &runtime.Unknown{Raw: text, ContentType: runtime.ContentTypeJSON}
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		return usagef("writing the lab's kubeconfig: %w; give another file with --kubeconfig", err)
	}
	return nil
}

// placeExtension is the kubeconfig's extension that holds a labPlace.
const placeExtension = "hitless-lab"

// labPlace is where the lab's client lives: descriptors of namespaces in a process. User is -1 when it is the process's own.
type labPlace struct {
	Pid  int `json:"pid"`
	Net  int `json:"net"`
	User int `json:"user"`
}

// placeOf takes the client's network namespace out of a message, and asks for the user namespace that owns it (ioctl_ns(2)).
// Both stay open as long as this process lives.
func placeOf(rights []byte) (place labPlace, err error) {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil || len(messages) != 1 {
		return place, fmt.Errorf("the lab sent no namespace: %w", errors.Join(err, errors.ErrUnsupported))
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return place, fmt.Errorf("the lab sent no namespace: %w", err)
	}
	place = labPlace{Pid: os.Getpid(), Net: fds[0], User: -1}
	user, err := unix.IoctlRetInt(place.Net, unix.NS_GET_USERNS)
	if err != nil {
		return place, fmt.Errorf("asking whose the lab's network is: %w", err)
	}
	var own, theirs unix.Stat_t
	if err := errors.Join(unix.Stat("/proc/self/ns/user", &own), unix.Fstat(user, &theirs)); err != nil {
		return place, fmt.Errorf("asking whose the lab's network is: %w", err)
	}
	if own.Ino != theirs.Ino {
		place.User = user
	}
	return place, nil
}

// LabShell is the command line that runs a program on the machine of a lab's client: with its network and everything else of
// this machine. file is the kubeconfig that Lab wrote.
func LabShell(file string, command []string) ([]string, error) {
	config, err := clientcmd.LoadFromFile(file)
	if err != nil {
		return nil, usagef("reading the lab's kubeconfig: %w; `hitless lab up` writes it", err)
	}
	var place labPlace
	known, is := config.Extensions[placeExtension].(*runtime.Unknown)
	if !is || json.Unmarshal(known.Raw, &place) != nil {
		return nil, usagef("%s is not of a lab: `hitless lab up` writes such a file; other clusters are reached without a shell", file)
	}
	descriptor := func(fd int) string { return fmt.Sprintf("/proc/%d/fd/%d", place.Pid, fd) }
	if link, err := os.Readlink(descriptor(place.Net)); err != nil || len(link) < 4 || link[:4] != "net:" {
		return nil, usagef("the lab of %s is gone: process %s does not hold it any more; `hitless lab up` makes another", file, strconv.Itoa(place.Pid))
	}
	words := []string{"nsenter", "--net=" + descriptor(place.Net)}
	if place.User >= 0 {
		words = append(words, "--user="+descriptor(place.User), "--preserve-credentials")
	}
	return append(append(words, "--"), command...), nil
}
