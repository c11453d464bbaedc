// Package kube runs a real Kubernetes control plane for the lab: unmodified etcd, kube-apiserver,
// kube-controller-manager and kube-scheduler in the lab's network namespace at topology.ControlAddr. It neither builds
// these programs nor runs nodes. It is not for production: its storage is deleted with the lab, and every client has
// all permissions.
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

// Programs of the control plane: keys of Config.Binaries and names of the logs.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
)

// Programs lists the programs of the control plane in start order.
func Programs() []string { return []string{Etcd, APIServer, ControllerManager, Scheduler} }

// Config configures a control plane.
type Config struct {
	// Binaries maps each of Programs to its path.
	Binaries map[string]string
	// Dir is a directory for this control plane alone, created if missing: certificates, kubeconfigs, etcd's data. It
	// should be on a tmpfs; etcd does not sync to disk.
	Dir string
	// Procs starts the programs and keeps their logs.
	Procs *procs.Supervisor
	// Nodes are registered before Up returns; CreateNode adds more.
	Nodes []Node
	// Controllers are the controllers that run; DefaultControllers when empty.
	Controllers []string
	// Workloads adds what pods need that run the programs of their images: WorkloadControllers, and certificates between the API server
	// and kubelets.
	Workloads bool
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

// Up starts the control plane and returns when workloads can run: the programs are healthy, the default service account
// exists (without it no pod is admitted) and the Nodes are registered. On failure it stops the programs; the error has
// the last log lines of the failed one.
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
			return fmt.Errorf("Config.Binaries has no path for %s; the control plane needs %s", name, strings.Join(Programs(), ", "))
		}
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("looking for the program %s: %w", name, err)
		}
	}
	if c.config.Procs == nil || c.config.Dir == "" {
		return errors.New("Config.Procs and Config.Dir are required")
	}
	if c.config.Now == nil {
		c.config.Now = time.Now
	}
	if c.config.Deadline == 0 {
		c.config.Deadline = DefaultDeadline
	}
	if len(c.config.Controllers) == 0 {
		c.config.Controllers = DefaultControllers()
		if c.config.Workloads {
			c.config.Controllers = append(c.config.Controllers, WorkloadControllers()...)
		}
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

// Client returns a client with the administrator's rights and without a rate limit. An empty content type means
// client-go's default, JSON; "application/vnd.kubernetes.protobuf" is cheaper for the API server.
func (c *ControlPlane) Client(contentType string) (kubernetes.Interface, error) {
	return NewClient(c.Kubeconfig, contentType)
}

// RESTConfig returns the configuration of Client, for other client libraries such as klient.
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

// Process returns the running program of that name, or nil if it was not started.
func (c *ControlPlane) Process(name string) *procs.Process {
	i := slices.IndexFunc(c.running, func(p *procs.Process) bool { return p.Name == name })
	if i < 0 {
		return nil
	}
	return c.running[i]
}

// Down kills the programs in reverse start order, waits for their end and removes etcd's data. There is no graceful
// stop, because nothing is kept.
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
