package kubelet

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// until reports after which decision a probe stops, as in the kubelet's prober/worker.go.
type until func(ok bool) bool

func untilNever(bool) bool      { return false } // readiness
func untilFirst(bool) bool      { return true }  // startup
func untilFailure(ok bool) bool { return !ok }   // liveness

// verdict counts consecutive equal results.
type verdict struct {
	success, failure int32 // thresholds
	last             bool
	run              int32
}

// observe adds a result and reports whether it has just reached its threshold.
func (v *verdict) observe(ok bool) bool {
	if v.run == 0 || ok != v.last {
		v.last, v.run = ok, 0
	}
	v.run++
	if ok {
		return v.run == v.success
	}
	return v.run == v.failure
}

// keepProbing calls check periodically, first at the initial delay after the container's start, until ctx ends or the
// last decision is made. A check that exceeds the probe's timeout has failed.
func keepProbing(ctx context.Context, spec *corev1.Probe, began time.Time, check func(context.Context) error, last until,
	decided func(ok bool)) {
	v := verdict{success: orDefault(spec.SuccessThreshold, 1), failure: orDefault(spec.FailureThreshold, 3)}
	if !pause(ctx, seconds(spec.InitialDelaySeconds)-time.Since(began)) {
		return
	}
	ticker := time.NewTicker(seconds(orDefault(spec.PeriodSeconds, 10)))
	defer ticker.Stop()
	for {
		limit, cancel := context.WithTimeout(ctx, seconds(orDefault(spec.TimeoutSeconds, 1)))
		ok := check(limit) == nil
		cancel()
		if ctx.Err() != nil {
			return
		}
		if v.observe(ok) {
			decided(ok)
			if last(ok) {
				return
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

func seconds(n int32) time.Duration { return time.Duration(n) * time.Second }

// orDefault applies a default of the API server, which hand-written timelines lack.
func orDefault(n, absent int32) int32 {
	if n <= 0 {
		return absent
	}
	return n
}

// pause waits for d if it is positive; it returns false if ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// check returns the probe's check. It dials from the node, as a kubelet does, so that a proxy on the node handles it
// the same way.
func (c *container) check(r *containerRun, spec *corev1.Probe) func(context.Context) error {
	switch {
	case spec.HTTPGet != nil:
		return func(ctx context.Context) error { return c.get(ctx, spec.HTTPGet) }
	case spec.TCPSocket != nil:
		return func(ctx context.Context) error {
			number, err := c.port(spec.TCPSocket.Port)
			if err != nil {
				return err
			}
			return c.pod.k.host.connect(ctx, hostPort(c.target(spec.TCPSocket.Host), number))
		}
	case spec.GRPC != nil:
		return func(ctx context.Context) error {
			service := ""
			if spec.GRPC.Service != nil {
				service = *spec.GRPC.Service
			}
			return c.pod.k.host.health(ctx, hostPort(c.target(""), int(spec.GRPC.Port)), service)
		}
	case spec.Exec != nil:
		return func(ctx context.Context) error { return c.runCommand(ctx, r, spec.Exec.Command) }
	}
	return func(context.Context) error { return fmt.Errorf("the probe has no httpGet, tcpSocket, grpc or exec") }
}

// get requests a path; status 200 to 399 is success.
func (c *container) get(ctx context.Context, action *corev1.HTTPGetAction) error {
	number, err := c.port(action.Port)
	if err != nil {
		return err
	}
	header := http.Header{"User-Agent": {"kube-probe/1.37"}, "Accept": {"*/*"}}
	for _, h := range action.HTTPHeaders {
		header.Add(h.Name, h.Value)
	}
	path := action.Path
	if path == "" || path[0] != '/' {
		path = "/" + path
	}
	scheme := "http://"
	if action.Scheme == corev1.URISchemeHTTPS {
		scheme = "https://"
	}
	status, err := c.pod.k.host.get(ctx, scheme+hostPort(c.target(action.Host), number)+path, header)
	if err == nil && (status < http.StatusOK || status >= http.StatusBadRequest) {
		err = fmt.Errorf("GET %s: status %d", path, status)
	}
	return err
}

func (c *container) target(host string) string {
	if host != "" {
		return host
	}
	return c.pod.addr.String()
}

// port resolves a port number or the name of a container port.
func (c *container) port(p intstr.IntOrString) (int, error) {
	if p.Type == intstr.Int {
		return int(p.IntVal), nil
	}
	for _, port := range c.spec.Ports {
		if port.Name == p.StrVal {
			return int(port.ContainerPort), nil
		}
	}
	number, err := strconv.Atoi(p.StrVal)
	if err != nil {
		return 0, fmt.Errorf("container %s has no port named %q", c.spec.Name, p.StrVal)
	}
	return number, nil
}
