//go:build linux

package guest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hitless/hitless/internal/progress"
	"github.com/hitless/hitless/lab"
	"github.com/hitless/hitless/lab/host"
	"github.com/hitless/hitless/lab/vm"
	"github.com/hitless/hitless/record"
)

// holdLab brings the lab up and keeps it until a part of it fails or ctx ends. It records nothing: the programs that use the lab
// keep their own records.
func holdLab(ctx context.Context, plan Plan, r *recorder, now func() time.Duration) error {
	offer := offerOnHost
	if plan.Kernel != KernelHost {
		if err := errors.Join(raiseLimits(), vm.SeedPool(plan.Seed)); err != nil {
			return fmt.Errorf("preparing the kernel for the lab: %w", err)
		}
		offer = offerInVM
	}
	cfg := labConfig(plan, r, now)
	cfg.Recorder, cfg.Choose, cfg.Network.Pacer = discard{}, plan.choice, nil
	l, err := lab.Up(ctx, cfg)
	if err != nil {
		return err
	}
	defer l.Down()
	ready, err := readyLab(l)
	if err != nil {
		return err
	}
	closing, err := offer(ctx, l, ready, r, now)
	if err != nil {
		return err
	}
	defer closing()
	select {
	case err := <-l.Failed():
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// offerOnHost forwards the host's listener to the API server, and sends a LabReady and the client's network namespace (see LabScenario).
func offerOnHost(ctx context.Context, l *lab.Lab, ready LabReady, _ *recorder, _ func() time.Duration) (closing func(), err error) {
	told := os.NewFile(host.FirstPassed+1, "ready")
	defer told.Close()
	listener, err := net.FileListener(os.NewFile(host.FirstPassed, "API listener"))
	if err != nil {
		return nil, fmt.Errorf("opening the listener for the API: %w", err)
	}
	// The client's namespace has another loopback than the host.
	within, err := l.Net.Client.Listen(ctx, "tcp", listener.Addr().String())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listening for the client: %w", err), listener.Close())
	}
	for _, from := range []net.Listener{listener, within} {
		go host.Forward(from, ready.Server)
	}
	return func() { listener.Close(); within.Close() }, sendReady(told, ready, l.Net.Client.Fd())
}

// outsideLink is the network device of a VM.
const outsideLink = "eth0"

// offerInVM connects the VM's network device to the client, and writes a LabReady into the region (see LabScenario).
func offerInVM(_ context.Context, l *lab.Lab, ready LabReady, r *recorder, now func() time.Duration) (closing func(), err error) {
	if err := l.Net.ConnectOutside(outsideLink); err != nil {
		return nil, err
	}
	data, err := json.Marshal(ready)
	if err == nil {
		err = r.frames.WriteFile(ReadyFile, data)
	}
	if err != nil {
		return nil, fmt.Errorf("reporting to the host that the lab is up: %w", err)
	}
	newConsole(now).report(progress.Event{Kind: progress.Checkpoint, At: now(), Text: "the API server can be reached"})
	return func() {}, nil
}

// readyLab returns the lab's kubeconfig, and the address of its API server.
func readyLab(l *lab.Lab) (ready LabReady, err error) {
	if ready.Kubeconfig, err = os.ReadFile(l.Kubeconfig); err != nil {
		return ready, fmt.Errorf("reading the lab's kubeconfig: %w", err)
	}
	config, err := clientcmd.Load(ready.Kubeconfig)
	if err != nil {
		return ready, fmt.Errorf("reading the lab's kubeconfig: %w", err)
	}
	for _, c := range config.Clusters {
		u, err := url.Parse(c.Server)
		if err != nil {
			return ready, fmt.Errorf("reading the lab's kubeconfig: %w", err)
		}
		ready.Server = u.Host
	}
	return ready, nil
}

// sendReady sends the host the message and a descriptor of the client's network namespace (unix(7), SCM_RIGHTS).
func sendReady(to *os.File, ready LabReady, namespace int) error {
	data, err := json.Marshal(ready)
	if err == nil {
		err = unix.Sendmsg(int(to.Fd()), data, unix.UnixRights(namespace), nil, 0)
	}
	if err != nil {
		return fmt.Errorf("reporting to the host that the lab is up: %w", err)
	}
	return nil
}

// discard is a recorder that drops everything.
type discard struct{}

func (discard) Event(record.Event)     {}
func (discard) Attempt(record.Attempt) {}
