package balancer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hitless/hitless/lab/procs"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Time limits for the start of HAProxy and for its end after SIGTERM.
const (
	haproxyStart = 20 * time.Second
	haproxyGrace = 2 * time.Second
)

// haproxy runs one HAProxy process per service, as cloud-provider-kind ran one container. A changed configuration
// starts a new process that takes over the listening socket (-sf); the old one ends with its connections.
//
// A reload of cloud-provider-kind lost connections: 5 to 15 of 12,000 in 20 reloads at 1,000 connections a second. Its
// HAProxy 2.2 in master-worker mode did not pass sockets on, and its rule against empty backends reset connections of a
// stopping process. Here the kernel moves the backlog to the new process, and the rule exempts a stopping process.
//
// After a reload every server counts as up until its first check. The analysis attributes the resulting loss to the
// balancer.
type haproxy struct {
	cfg     Config
	post    func(func() error)
	report  func(serverCheck) error
	handle  *netlink.Handle
	lo      netlink.Link
	serving map[frontend]*haproxyService
	started int // processes started so far
}

type haproxyService struct {
	addr    netip.Addr
	current *haproxyProcess
	old     []*haproxyProcess
}

type haproxyProcess struct {
	*procs.Process
	log        *os.File
	superseded bool     // owned by the goroutine of Run
	flows      *flowLog // owned by the goroutine that reads the log, until the process ends
}

func newHAProxy(cfg Config, post func(func() error), report func(serverCheck) error) (*haproxy, error) {
	if _, err := os.Stat(cfg.HAProxy); err != nil {
		return nil, fmt.Errorf("looking for HAProxy: %w (install the package haproxy)", err)
	}
	handle, err := netlink.NewHandleAt(netns.NsHandle(cfg.Net.Balancer.Fd()), unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("opening netlink in the balancer's namespace: %w", err)
	}
	lo, err := handle.LinkByName("lo")
	if err != nil {
		handle.Close()
		return nil, fmt.Errorf("finding lo in the balancer's namespace: %w", err)
	}
	// Since Linux 5.14; without it a reload loses the connections in the backlog.
	if err := sysctl(cfg.Net.Balancer, "net/ipv4/tcp_migrate_req", "1"); err != nil && !errors.Is(err, os.ErrNotExist) {
		handle.Close()
		return nil, fmt.Errorf("enabling net.ipv4.tcp_migrate_req: %w", err)
	}
	return &haproxy{cfg: cfg, post: post, report: report, handle: handle, lo: lo, serving: map[frontend]*haproxyService{}}, nil
}

func (h *haproxy) checksHealth() bool { return true }

func (h *haproxy) set(t table) error {
	s := h.serving[t.frontend()]
	if s == nil {
		s = &haproxyService{addr: t.addr}
		if err := h.handle.AddrReplace(h.lo, loopback(t.addr)); err != nil {
			return fmt.Errorf("adding the address %s to the balancer: %w", t.addr, err)
		}
		h.serving[t.frontend()] = s
	}
	for _, p := range t.ports {
		if !slices.Contains(servable(t.ports), p) {
			h.cfg.Log.Warn("HAProxy does not serve a port: it is not TCP, or has no node port", "service", t.service,
				"port", p.number, "protocol", p.protocol)
		}
	}
	old := s.current
	if len(servable(t.ports)) == 0 {
		s.current = nil
	} else {
		p, err := h.start(t, old)
		if err != nil {
			return fmt.Errorf("starting HAProxy for %s: %w", t.service, err)
		}
		s.current = p
	}
	if old == nil {
		return nil
	}
	old.superseded = true
	if s.current == nil {
		return old.end()
	}
	s.old = append(slices.DeleteFunc(s.old, func(p *haproxyProcess) bool { return p.endedAndClosed() }), old)
	return nil
}

// start starts HAProxy for a service and waits until it has replaced old (nil at first).
func (h *haproxy) start(t table, old *haproxyProcess) (*haproxyProcess, error) {
	h.started++
	socket := fmt.Sprintf("hitless-balancer-%d", h.started)
	name := t.frontend().family.Named("haproxy") + "-" + strings.ReplaceAll(t.service, "/", "-")
	file := strings.TrimSuffix(h.cfg.Procs.LogFile(name), ".log") + ".cfg"
	if err := os.WriteFile(file, []byte(haproxyConfig(t, h.cfg, socket)), 0o644); err != nil {
		return nil, fmt.Errorf("writing its configuration: %w", err)
	}
	log, err := os.OpenFile(h.cfg.Procs.LogFile(name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening its log: %w", err)
	}
	args := []string{"-db", "-f", file}
	if old != nil && old.Running() {
		args = append(args, "-sf", strconv.Itoa(old.Pid()))
	}
	p := &haproxyProcess{log: log, flows: newFlowLog(h.cfg, t)}
	p.Process, err = h.cfg.Procs.Start(procs.Spec{Name: name, Path: h.cfg.HAProxy, Args: args,
		Enter: h.cfg.Net.Balancer.Enter, Stdout: &lineReader{line: func(text string) { h.logLine(t.frontend(), p, text) }}})
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	if err := h.await(p, socket); err != nil {
		return nil, fmt.Errorf("%w; its log ends:\n%s", errors.Join(err, p.end()), h.cfg.Procs.Tail(name, 10))
	}
	go h.watch(t.service, p)
	return p, nil
}

// await returns when the process answers on its socket. HAProxy listens and has stopped the old process before it
// serves its first request.
func (h *haproxy) await(p *haproxyProcess, socket string) error {
	ctx, cancel := context.WithTimeout(context.Background(), haproxyStart)
	defer cancel()
	// HAProxy pads the names of abstract sockets with zeros to the full 108 bytes of an address.
	name := "@" + socket + strings.Repeat("\x00", 107-len(socket))
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := h.cfg.Net.Balancer.DialContext(ctx, "unix", name)
		if err == nil {
			return errors.Join(awaitReply(ctx, conn), conn.Close())
		}
		select {
		case <-p.Done():
			return fmt.Errorf("it ended during its start: %s", p.ExitText())
		case <-ctx.Done():
			return fmt.Errorf("it was not ready within %s: %w", haproxyStart, err)
		case <-tick.C:
		}
	}
}

// awaitReply returns when HAProxy has answered one command.
func awaitReply(ctx context.Context, conn net.Conn) error {
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	if _, err := conn.Write([]byte("show info\n")); err != nil {
		return fmt.Errorf("asking whether it is ready: %w", err)
	}
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		return fmt.Errorf("waiting for it to be ready: %w", err)
	}
	return nil
}

// watch ends the balancer when a process ends that was not replaced.
func (h *haproxy) watch(service string, p *haproxyProcess) {
	<-p.Done()
	h.post(func() error {
		if p.superseded {
			return nil
		}
		return fmt.Errorf("the HAProxy of %s has ended (%s); its log ends:\n%s", service, p.ExitText(),
			h.cfg.Procs.Tail(p.Name, 10))
	})
}

// logLine handles a line of a process's log.
func (h *haproxy) logLine(id frontend, p *haproxyProcess, text string) {
	now := h.cfg.Now()
	if port, f, ok := readFlowLine(text, now); ok {
		p.flows.add(port, f)
		return
	}
	fmt.Fprintln(p.log, text)
	v, ok := readHealthLine(text, now)
	if !ok {
		return
	}
	v.frontend = id
	h.post(func() error {
		if p.superseded {
			return nil
		}
		return h.report(v)
	})
}

func (h *haproxy) remove(t table) error {
	s := h.serving[t.frontend()]
	if s == nil {
		return nil
	}
	delete(h.serving, t.frontend())
	return h.drop(s)
}

// drop kills all processes of a service, which closes their connections.
func (h *haproxy) drop(s *haproxyService) error {
	var errs error
	for _, p := range append(s.old, s.current) {
		if p != nil {
			p.superseded = true
			errs = errors.Join(errs, p.end())
		}
	}
	if err := h.handle.AddrDel(h.lo, loopback(s.addr)); err != nil {
		errs = errors.Join(errs, fmt.Errorf("removing the address %s from the balancer: %w", s.addr, err))
	}
	return errs
}

func (h *haproxy) close() error {
	var errs error
	for _, key := range slices.SortedFunc(maps.Keys(h.serving), compareFrontends) {
		errs = errors.Join(errs, h.drop(h.serving[key]))
	}
	h.handle.Close()
	return errs
}

func (p *haproxyProcess) end() error {
	err := p.Stop(context.Background(), haproxyGrace)
	p.flows.flush()
	return errors.Join(err, p.log.Close())
}

func (p *haproxyProcess) endedAndClosed() bool {
	if p.Running() {
		return false
	}
	p.flows.flush()
	p.log.Close()
	return true
}

func loopback(addr netip.Addr) *netlink.Addr {
	a := &netlink.Addr{IPNet: &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(addr.BitLen(), addr.BitLen())}}
	if addr.Is6() {
		a.Flags = unix.IFA_F_NODAD // usable at once
	}
	return a
}

// lineReader is a writer that calls line for each line of its input.
type lineReader struct {
	mu   sync.Mutex
	rest []byte
	line func(string)
}

func (r *lineReader) Write(data []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rest = append(r.rest, data...)
	for {
		text, rest, found := bytes.Cut(r.rest, []byte("\n"))
		if !found {
			return len(data), nil
		}
		r.line(string(text))
		r.rest = rest
	}
}
