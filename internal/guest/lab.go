package guest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hitless/hitless/lab"
	"github.com/hitless/hitless/lab/host"
	"github.com/hitless/hitless/record"
)

// LabScenario keeps a lab up, for others to use, until it is ended. Its runner is passed a listener of the host, whose
// connections go to the API server, and a unix socket, on which it sends a LabReady and the client's network namespace.
const LabScenario = "lab"

// LabReady is what the host is told when the lab is up.
type LabReady struct {
	Kubeconfig []byte `json:"kubeconfig"` // of the administrator, with the listener as the server
}

// holdLab brings the lab up and keeps it until a part of it fails or ctx ends. It records nothing: the programs that use the lab
// keep their own records.
func holdLab(ctx context.Context, plan Plan, r *recorder, now func() time.Duration) error {
	listener, err := net.FileListener(os.NewFile(host.FirstPassed, "API listener"))
	if err != nil {
		return fmt.Errorf("taking the listener for the API: %w", err)
	}
	defer listener.Close()
	told := os.NewFile(host.FirstPassed+1, "ready")
	defer told.Close()
	cfg := labConfig(plan, r, now)
	cfg.Recorder, cfg.Choose = nobody{}, plan.choice
	l, err := lab.Up(ctx, cfg)
	if err != nil {
		return err
	}
	defer l.Down()
	ready, server, err := offer(l, listener.Addr().String())
	if err != nil {
		return err
	}
	// The client's machine is a namespace of its own, where the host's loopback is not.
	within, err := l.Net.Client.Listen(ctx, "tcp", listener.Addr().String())
	if err != nil {
		return fmt.Errorf("listening for the client: %w", err)
	}
	defer within.Close()
	for _, from := range []net.Listener{listener, within} {
		go forward(from, server)
	}
	if err := tell(told, ready, l.Net.Client.Fd()); err != nil {
		return err
	}
	select {
	case err := <-l.Failed():
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// offer is the lab's kubeconfig with the given address in the place of the API server's own, which is returned too.
func offer(l *lab.Lab, address string) (ready LabReady, server string, err error) {
	config, err := clientcmd.LoadFromFile(l.Kubeconfig)
	if err != nil {
		return ready, "", fmt.Errorf("reading the lab's kubeconfig: %w", err)
	}
	for _, c := range config.Clusters {
		u, err := url.Parse(c.Server)
		if err != nil {
			return ready, "", fmt.Errorf("reading the lab's kubeconfig: %w", err)
		}
		server, u.Host = u.Host, address
		c.Server = u.String()
	}
	ready.Kubeconfig, err = clientcmd.Write(*config)
	return ready, server, err
}

// tell sends the host the lab's kubeconfig and a descriptor of the client's network namespace (unix(7), SCM_RIGHTS).
func tell(to *os.File, ready LabReady, namespace int) error {
	data, err := json.Marshal(ready)
	if err == nil {
		err = unix.Sendmsg(int(to.Fd()), data, unix.UnixRights(namespace), nil, 0)
	}
	if err != nil {
		return fmt.Errorf("telling the host that the lab is up: %w", err)
	}
	return nil
}

// forward passes the listener's connections on to the address until the listener is closed.
func forward(from net.Listener, to string) {
	for {
		in, err := from.Accept()
		if err != nil {
			return
		}
		go func() {
			defer in.Close()
			out, err := net.Dial("tcp", to)
			if err != nil {
				return // the client sees its connection closed, as with an API server that is gone
			}
			defer out.Close()
			var both sync.WaitGroup
			for _, way := range [][2]net.Conn{{in, out}, {out, in}} {
				both.Go(func() {
					_, _ = io.Copy(way[0], way[1])
					_ = way[0].(*net.TCPConn).CloseWrite() // the other way may go on
				})
			}
			both.Wait()
		}()
	}
}

// nobody keeps no record.
type nobody struct{}

func (nobody) Event(record.Event)     {}
func (nobody) Attempt(record.Attempt) {}
