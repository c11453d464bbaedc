// Package kube runs a real Kubernetes control plane for the lab: unmodified etcd, kube-apiserver, kube-controller-manager
// and kube-scheduler, started in the lab's own network namespace at topology.ControlAddr. It is not for building these
// programs, not for what runs on the nodes, and not a production set-up: nothing it stores survives the lab, and every
// client may do everything.
package kube

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/hitless/hitless/lab/procs"
)

// The programs of the control plane: the keys of Config.Binaries and the names of their logs.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
)

// Programs lists the programs of the control plane in the order in which they start.
func Programs() []string { return []string{Etcd, APIServer, ControllerManager, Scheduler} }

// Config says how to bring a control plane up.
type Config struct {
	// Binaries has the path of each of Programs.
	Binaries map[string]string
	// Dir is a folder of this control plane alone, made if missing: certificates, kubeconfigs, etcd's data. It should
	// be on a tmpfs; etcd does not sync to disk.
	Dir string
	// Procs starts the programs and keeps their logs.
	Procs *procs.Supervisor
	// Nodes are registered before Up returns; more can follow with CreateNode.
	Nodes []Node
	// Controllers are the controllers that run; DefaultControllers when empty.
	Controllers []string
	// Now is the clock for the validity of the certificates; time.Now when nil.
	Now func() time.Time
	// Deadline is how long each program may take until it is healthy; DefaultDeadline when 0.
	Deadline time.Duration
}

// DefaultDeadline is how long a program may take until it is healthy: on a host kernel all four need about 3 s, in an
// emulated guest about ten times as much.
const DefaultDeadline = 2 * time.Minute

// ControlPlane is a running control plane.
type ControlPlane struct {
	// Kubeconfig is the path of the administrator's kubeconfig.
	Kubeconfig string
	// Timings says how long each stage of Up took, in order.
	Timings []Timing

	config    Config
	authority *authority
	running   []*procs.Process
}

// Timing is how long a stage took.
type Timing struct {
	Stage string
	Took  time.Duration
}

// Up brings the control plane up and returns when it is ready for workloads: /readyz of the API server, healthz of the
// controller manager and the scheduler, the default service account (without which no pod is admitted), and Nodes
// registered. On failure it stops what it started; the error has the last log lines of the program that failed.
func Up(ctx context.Context, config Config) (*ControlPlane, error) {
	c := &ControlPlane{config: config}
	if err := c.complete(); err != nil {
		return nil, fmt.Errorf("bringing up the control plane: %w", err)
	}
	if err := c.up(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("bringing up the control plane: %w", err), c.Down())
	}
	return c, nil
}

func (c *ControlPlane) complete() error {
	for _, name := range Programs() {
		path := c.config.Binaries[name]
		if path == "" {
			return fmt.Errorf("no path given for %s; it needs %s", name, strings.Join(Programs(), ", "))
		}
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("the program %s is not there: %w", name, err)
		}
	}
	if c.config.Procs == nil || c.config.Dir == "" {
		return errors.New("a supervisor (Procs) and a folder (Dir) must be given")
	}
	if c.config.Now == nil {
		c.config.Now = time.Now
	}
	if c.config.Deadline == 0 {
		c.config.Deadline = DefaultDeadline
	}
	if len(c.config.Controllers) == 0 {
		c.config.Controllers = DefaultControllers()
	}
	return nil
}

func (c *ControlPlane) up(ctx context.Context) error {
	stages := []struct {
		name string
		do   func(context.Context) error
	}{
		{"certificates", c.certify},
		{Etcd, c.startEtcd},
		{APIServer, c.startAPIServer},
		{ControllerManager + " and " + Scheduler, c.startControllers},
		{"nodes", c.registerNodes},
		{"service account", c.awaitServiceAccount},
	}
	for _, stage := range stages {
		begin := time.Now()
		if err := stage.do(ctx); err != nil {
			return err
		}
		c.Timings = append(c.Timings, Timing{Stage: stage.name, Took: time.Since(begin)})
	}
	return nil
}

// Client is a client with the administrator's rights. An empty content type is client-go's default, JSON;
// "application/vnd.kubernetes.protobuf" is cheaper for the API server. Requests are not throttled.
func (c *ControlPlane) Client(contentType string) (kubernetes.Interface, error) {
	return NewClient(c.Kubeconfig, contentType)
}

// RESTConfig is the configuration of Client, for klient and others that bring their own client.
func (c *ControlPlane) RESTConfig(contentType string) (*rest.Config, error) {
	return restConfig(c.Kubeconfig, contentType)
}

// start starts a program of the control plane.
func (c *ControlPlane) start(name string, args []string) (*procs.Process, error) {
	p, err := c.config.Procs.Start(procs.Spec{Name: name, Path: c.config.Binaries[name], Args: args, Env: environment})
	if err == nil {
		c.running = append(c.running, p)
	}
	return p, err
}

// Process is the running program of that name, for scenarios that freeze or kill parts of the control plane; nil when
// it was not started.
func (c *ControlPlane) Process(name string) *procs.Process {
	i := slices.IndexFunc(c.running, func(p *procs.Process) bool { return p.Name == name })
	if i < 0 {
		return nil
	}
	return c.running[i]
}

// Down kills the programs, last started first, waits for their end and removes what etcd stored. Nothing is stopped
// gracefully: there is nothing to save.
func (c *ControlPlane) Down() error {
	var errs []error
	for _, p := range slices.Backward(c.running) {
		if err := p.Signal(syscall.SIGKILL); err != nil {
			errs = append(errs, fmt.Errorf("killing %s: %w", p.Name, err))
			continue
		}
		<-p.Done()
	}
	c.running = nil
	return errors.Join(append(errs, os.RemoveAll(c.file("etcd")))...)
}

func (c *ControlPlane) file(name string) string { return filepath.Join(c.config.Dir, name) }
