package kube

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hitless/hitless/lab/procs"
)

// pollInterval is the interval of health checks during the start. It causes wake-ups only then.
const pollInterval = 50 * time.Millisecond

// tailLines is how many lines of a failed program's log are in the error.
const tailLines = 15

// await calls ask until it returns nil. It returns an error at the deadline, or as soon as the program ends.
func (c *ControlPlane) await(ctx context.Context, p *procs.Process, what string, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, c.config.Deadline)
	defer cancel()
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		last := ask(ctx)
		if last == nil {
			return nil
		}
		select {
		case <-ticker.C:
		case <-p.Done():
			return fmt.Errorf("%s ended (%s) before %s; the end of its log:\n%s",
				p.Name, p.ExitText(), what, c.config.Procs.Tail(p.Name, tailLines))
		case <-ctx.Done():
			return fmt.Errorf("%s: %w within %s (last answer: %v); the end of the log of %s:\n%s",
				what, ctx.Err(), c.config.Deadline, last, p.Name, c.config.Procs.Tail(p.Name, tailLines))
		}
	}
}

// Watch returns an error when a program of the control plane ends, and nil when ctx does.
func (c *ControlPlane) Watch(ctx context.Context) error {
	ended := make(chan *procs.Process, len(c.running))
	for _, p := range c.running {
		go func() {
			select {
			case <-p.Done():
				ended <- p
			case <-ctx.Done():
			}
		}()
	}
	select {
	case p := <-ended:
		if ctx.Err() != nil { // the lab ends, and with it its programs
			return nil
		}
		return fmt.Errorf("%s ended (%s); the end of its log:\n%s", p.Name, p.ExitText(), c.config.Procs.Tail(p.Name, tailLines))
	case <-ctx.Done():
		return nil
	}
}

// awaitHealthy waits until a program's health endpoint returns 200.
func (c *ControlPlane) awaitHealthy(ctx context.Context, p *procs.Process, url string) error {
	client, err := c.healthClient()
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	return c.await(ctx, p, p.Name+" became healthy at "+url, func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
		if err == nil && resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("status %d: %s", resp.StatusCode, strings.TrimSpace(string(body)))
		}
		return err
	})
}

func (c *ControlPlane) healthClient() (*http.Client, error) {
	own, err := c.authority.client("hitless:health", mastersGroup)
	if err != nil {
		return nil, err
	}
	cert, err := tls.X509KeyPair(own.cert, own.key)
	if err != nil {
		return nil, fmt.Errorf("reading back the certificate for health checks: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(c.authority.cert)
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{
		MinVersion: tls.VersionTLS12, RootCAs: roots, Certificates: []tls.Certificate{cert}, Time: c.config.Now}}}, nil
}

// awaitServiceAccount waits for the default service account of namespace default; the API server admits no pod before
// it exists.
func (c *ControlPlane) awaitServiceAccount(ctx context.Context) error {
	client, err := c.Client("")
	if err != nil {
		return err
	}
	return c.await(ctx, c.Process(ControllerManager), "the service account default/default was made",
		func(ctx context.Context) error {
			_, err := client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
			return err
		})
}
