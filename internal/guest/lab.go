//go:build linux

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

// holdLab brings the lab up and keeps it until a part of it fails or ctx ends. It records nothing: the programs that use the lab
// keep their own records.
func holdLab(ctx context.Context, plan Plan, r *recorder, now func() time.Duration) error {
	listener, err := net.FileListener(os.NewFile(host.FirstPassed, "API listener"))
	if err != nil {
		return fmt.Errorf("opening the listener for the API: %w", err)
	}
	defer listener.Close()
	told := os.NewFile(host.FirstPassed+1, "ready")
	defer told.Close()
	cfg := labConfig(plan, r, now)
	cfg.Recorder, cfg.Choose = discard{}, plan.choice
	l, err := lab.Up(ctx, cfg)
	if err != nil {
		return err
	}
	defer l.Down()
	ready, server, err := labKubeconfig(l, listener.Addr().String())
	if err != nil {
		return err
	}
	// The client's namespace has another loopback than the host.
	within, err := l.Net.Client.Listen(ctx, "tcp", listener.Addr().String())
	if err != nil {
		return fmt.Errorf("listening for the client: %w", err)
	}
	defer within.Close()
	for _, from := range []net.Listener{listener, within} {
		go forward(from, server)
	}
	if err := sendReady(told, ready, l.Net.Client.Fd()); err != nil {
		return err
	}
	select {
	case err := <-l.Failed():
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// labKubeconfig returns the lab's kubeconfig with the given address instead of the API server's own, and the latter.
func labKubeconfig(l *lab.Lab, address string) (ready LabReady, server string, err error) {
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

// sendReady sends the host the lab's kubeconfig and a descriptor of the client's network namespace (unix(7), SCM_RIGHTS).
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

// forward forwards the listener's connections to the address until the listener is closed.
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
				return // the client sees a closed connection
			}
			defer out.Close()
			var both sync.WaitGroup
			for _, way := range [][2]net.Conn{{in, out}, {out, in}} {
				both.Go(func() {
					_, _ = io.Copy(way[0], way[1])
					_ = way[0].(*net.TCPConn).CloseWrite() // the other direction may continue
				})
			}
			both.Wait()
		}()
	}
}

// discard is a recorder that drops everything.
type discard struct{}

func (discard) Event(record.Event)     {}
func (discard) Attempt(record.Attempt) {}
