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

// dialer opens a connection from the balancer's namespace.
type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// checker runs the health check of one service on one node: once at the start, then at a fixed phase of each interval.
//
// A check without a response after one interval has failed, as with HAProxy's default `timeout check`. Checks do not
// overlap, so the first one may time out after half an interval.
type checker struct {
	checkSpec
	node     netip.Addr
	interval time.Duration
	phase    time.Duration
	now      func() time.Duration
	dial     dialer
}

// run checks until ctx ends and reports each result.
func (c checker) run(ctx context.Context, report func(checkResult)) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		// The first check is out of phase and any check may start late: the next one is at least half an interval away.
		now := c.now()
		due := after(now+c.interval/2, c.phase, c.interval)
		got := c.check(ctx, min(c.interval, due-now))
		if ctx.Err() != nil {
			return
		}
		report(got)
		timer.Reset(max(0, due-c.now()))
	}
}

// check runs one health check.
func (c checker) check(ctx context.Context, timeout time.Duration) checkResult {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	status, err := c.exchange(ctx)
	got := checkResult{at: c.now(), status: status}
	if err != nil {
		got.status = statusOf(err)
		return got
	}
	code, _ := strconv.Atoi(status)
	got.pass = c.path == "" || code >= 200 && code < 400 // the range that HAProxy's httpchk accepts
	return got
}

func (c checker) exchange(ctx context.Context) (status string, err error) {
	address := netip.AddrPortFrom(c.node, uint16(c.port)).String()
	conn, err := c.dial(ctx, "tcp", address)
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
