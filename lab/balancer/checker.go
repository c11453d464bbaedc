package balancer

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"time"
)

// dialer opens a connection from where the balancer stands.
type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// checker asks one node for one service: at once, then at a fixed phase of each interval. A check without an answer
// after an interval has failed, as with HAProxy, whose `timeout check` is `inter` unless set; only the first has
// between a half and a whole interval, because checks do not overlap and the second is in phase.
type checker struct {
	question
	node     netip.Addr
	interval time.Duration
	phase    time.Duration
	now      func() time.Duration
	dial     dialer
}

// run checks until ctx ends and tells each answer.
func (c checker) run(ctx context.Context, tell func(answer)) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		// The next place of the grid that is not too near: the first check lies off the grid, and any may begin late.
		now := c.now()
		due := after(now+c.interval/2, c.phase, c.interval)
		got := c.ask(ctx, min(c.interval, due-now))
		if ctx.Err() != nil {
			return
		}
		tell(got)
		timer.Reset(max(0, due-c.now()))
	}
}

// ask does one check.
func (c checker) ask(ctx context.Context, timeout time.Duration) answer {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	status, err := c.exchange(ctx)
	got := answer{at: c.now(), status: status}
	if err != nil {
		got.status = statusOf(err)
		return got
	}
	code, _ := strconv.Atoi(status)
	got.pass = c.path == "" || code >= 200 && code < 400 // what HAProxy's httpchk takes as alive
	return got
}

func (c checker) exchange(ctx context.Context) (status string, err error) {
	address := netip.AddrPortFrom(c.node, uint16(c.port)).String()
	conn, err := c.dial(ctx, "tcp4", address)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if c.path == "" {
		return "connected", nil
	}
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return "", err
	}
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	_, err = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: hitless-balancer\r\nConnection: close\r\n\r\n",
		c.path, address)
	if err != nil {
		return "", err
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return "", err
	}
	response.Body.Close()
	return strconv.Itoa(response.StatusCode), nil
}
