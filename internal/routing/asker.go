//go:build linux

package routing

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"time"

	"github.com/hitless/hitless/lab/procs"
	"github.com/hitless/hitless/lab/topology"
)

// askerWithin bounds the time until an asker listens.
const askerWithin = time.Minute

// Ask serves requests at a Unix socket until the process ends: for each connection it reads `PROTOCOL ADDRESS:PORT`, makes the request from
// the namespaces and the control group of the process, and writes what answered. A proxy that translates the connections of a control group
// sees only such clients.
func Ask(socket string) error {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "unix", socket)
	if err != nil {
		return fmt.Errorf("serving requests: %w", err)
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return fmt.Errorf("serving requests: %w", err)
		}
		serveAsk(c)
	}
}

// The first word of an answer.
const (
	answered = "answered"
	failed   = "failed"
)

func serveAsk(c net.Conn) {
	defer c.Close()
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		return // the testbed has ended
	}
	protocol, address, _ := strings.Cut(strings.TrimSpace(line), " ")
	to, err := netip.ParseAddrPort(address)
	text := ""
	if err == nil {
		text, err = ask(protocol, to)
	}
	if err != nil {
		fmt.Fprintf(c, "%s %s", failed, errorWord(err))
		return
	}
	fmt.Fprintf(c, "%s %s", answered, text)
}

// wordError is an error that an asker has reported by errorWord.
type wordError string

func (e wordError) Error() string { return string(e) }

// askBy makes a request by an asker.
func askBy(socket, protocol string, to netip.AddrPort) (string, error) {
	c, err := net.DialTimeout("unix", socket, timeout)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if _, err := fmt.Fprintf(c, "%s %s\n", protocol, to); err != nil {
		return "", err
	}
	all, err := io.ReadAll(c)
	if err != nil {
		return "", err
	}
	word, text, _ := strings.Cut(string(all), " ")
	switch word {
	case answered:
		return text, nil
	case failed:
		return "", wordError(text)
	}
	return "", errors.New("the asker has ended")
}

// startAskers makes the clients on the node programs of the node, for subjects that translate the connections of its control group.
func (w *Testbed) startAskers(ctx context.Context) error {
	groups := map[*host]string{w.hosts["node"]: topology.GroupSystem}
	for _, h := range w.attached() {
		groups[h] = topology.GroupPods
	}
	for h, group := range groups {
		socket := filepath.Join(w.dir, "ask-"+h.name)
		spec := procs.Spec{Name: "ask-" + h.name, Path: w.program, Args: []string{"guest", "ask", socket}}
		if _, err := w.node.StartIn(h.ns, w.procs, group, spec); err != nil {
			return fmt.Errorf("starting the client of %s: %w", h.name, err)
		}
		if err := awaitSocket(ctx, socket); err != nil {
			return fmt.Errorf("starting the client of %s: %w", h.name, err)
		}
		h.asker = socket
	}
	return nil
}

// awaitSocket waits until a Unix socket is served.
func awaitSocket(ctx context.Context, socket string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, askerWithin, fmt.Errorf("%s is not served after %s", socket, askerWithin))
	defer cancel()
	for {
		if c, err := net.Dial("unix", socket); err == nil {
			return c.Close()
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(20 * time.Millisecond): // interval of the checks
		}
	}
}
