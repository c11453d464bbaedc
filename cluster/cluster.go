// Package cluster accesses live clusters: permissions and facts, a namespace for each run, addresses of Services, and the removal of all
// objects of runs. It changes objects in the namespaces of runs only. Changes of other objects need the user's permission, and are
// marked and restored. It has no scenario steps and no measurement.
package cluster

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/e2e-framework/klient"
)

// Cluster is a live cluster.
type Cluster struct {
	Klient klient.Client // of e2e-framework, for scenarios
	Client kubernetes.Interface
	Server string // address of the API server

	unlimited kubernetes.Interface // without rate limit and retries
	retrier   *retrier
}

// The time that an API server may be silent, the pause between two tries, and the time that an answer may take.
const (
	silenceLimit  = 90 * time.Second
	retryPause    = time.Second
	answerTimeout = 20 * time.Second
)

// ReportSilences calls report, from now on, after each time in which the API server did not answer.
func (c *Cluster) ReportSilences(tell func(from, to time.Time)) {
	c.retrier.mu.Lock()
	defer c.retrier.mu.Unlock()
	c.retrier.report = tell
}

// AnnounceSilences calls tell, from now on, with a sentence whenever the API server begins not to answer.
func (c *Cluster) AnnounceSilences(tell func(text string)) {
	c.retrier.mu.Lock()
	defer c.retrier.mu.Unlock()
	c.retrier.announce = func() {
		tell(fmt.Sprintf("the API server %s does not answer; each request is tried for %s", c.Server, c.retrier.limit))
	}
}

// SetClock replaces the real clock. It must be called before the first request.
func (c *Cluster) SetClock(clock Clock) { c.retrier.clock = clock }

// Open reads the kubeconfig and makes clients, without a request. An empty context is the kubeconfig's current one.
func Open(file, context string) (*Cluster, error) {
	config, err := readKubeconfig(file, context)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig %s: %w; name a file with --kubeconfig, and another of its contexts with --context", file, err)
	}
	return New(config)
}

// New makes clients of a configuration.
func New(config *rest.Config) (*Cluster, error) {
	// Five times client-go's default, and far below the rate of a controller.
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = 25, 50
	config.UserAgent = "hitless"
	// Both clients share the record of the server's silences.
	p := &retrier{limit: silenceLimit, pause: retryPause, timeout: answerTimeout, clock: RealClock{}}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, fmt.Errorf("reaching %s: %w", config.Host, err)
	}
	p.next = transport
	server, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("reaching %s: %w", config.Host, err)
	}
	config = &rest.Config{Host: server.String(), APIPath: config.APIPath, QPS: config.QPS, Burst: config.Burst, UserAgent: config.UserAgent, Transport: p,
		ContentConfig: rest.ContentConfig{ContentType: "application/json"}} // readable in the log of an HTTP proxy
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client for %s: %w", config.Host, err)
	}
	k, err := klient.New(rest.CopyConfig(config))
	if err != nil {
		return nil, fmt.Errorf("making a client for %s: %w", config.Host, err)
	}
	// Requests to pods go through the API server, which answers 503 for a pod that cannot be reached. The fleet retries these itself.
	config.QPS, config.Transport = -1, transport
	unpaced, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client for %s: %w", config.Host, err)
	}
	return &Cluster{Klient: k, Client: client, unlimited: unpaced, Server: config.Host, retrier: p}, nil
}

// OpenInPod makes clients for the cluster of this pod, without a request. The token of the service account is read again after the
// kubelet has renewed it.
func OpenInPod() (*Cluster, error) {
	config, err := rest.InClusterConfig()
	if err != nil {
		return nil, fmt.Errorf("finding the cluster of this pod: %w; --in-cluster is for a pod with the token of a service account, "+
			"elsewhere name a kubeconfig with --kubeconfig FILE", err)
	}
	return New(config)
}

// Explain adds a remedy to an error of the API, where one is known.
func Explain(err error) error {
	if err == nil {
		return nil
	}
	hint := ""
	switch {
	case apierrors.IsUnauthorized(err):
		hint = "the cluster does not accept the credentials: the kubeconfig's token or certificate has expired or was revoked; log in again"
	case strings.Contains(err.Error(), "exceeded quota"): // also in the status of a Deployment
		hint = "a quota of the cluster is too small: raise it, or run with fewer --set replicas"
	case apierrors.IsForbidden(err):
		hint = "the kubeconfig's user may not do that; `hitless run ... --dry-run` lists what a run needs"
	case apierrors.IsTooManyRequests(err):
		hint = "the API server is overloaded"
	case errors.As(err, new(net.Error)):
		hint = "the API server did not answer; check whether this machine reaches it"
	}
	if hint == "" || strings.Contains(err.Error(), hint) {
		return err
	}
	return fmt.Errorf("%w; %s", err, hint)
}
