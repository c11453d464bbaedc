// Package cluster is hitless's way to a live cluster, any that a kubeconfig leads to: what may be done there and what it is, a
// namespace for each run, where its Services can be reached, and how everything is taken away again. It changes nothing but
// what stands in such a namespace, unless its caller was told so by the user. What is done there (scenarios) and how it is
// measured (probes) is not its business.
package cluster

import (
	"fmt"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/e2e-framework/klient"
)

// Cluster is a cluster that a kubeconfig leads to.
type Cluster struct {
	Klient klient.Client // of e2e-framework, for scenarios
	Client kubernetes.Interface
	Server string // address of the API server

	unpaced  kubernetes.Interface // for what has a pace and a patience of its own
	patience *patience
}

// How long an API server may be away, how often it is asked meanwhile, and how long it may take to answer.
const (
	awayAtMost  = 90 * time.Second
	askAgain    = time.Second
	answersSoon = 20 * time.Second
)

// Away has the function told, from now on, of each time in which the API server did not answer.
func (c *Cluster) Away(tell func(from, to time.Time)) {
	c.patience.mu.Lock()
	defer c.patience.mu.Unlock()
	c.patience.tell = tell
}

// By has the cluster waited for by another clock than the wall's. It must be called before anything is asked.
func (c *Cluster) By(clock Clock) { c.patience.clock = clock }

// Open reads the kubeconfig and makes clients; it asks the cluster nothing yet. An empty context is the kubeconfig's current
// one.
func Open(file, context string) (*Cluster, error) {
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: file}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: context}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig %s: %w; name a file with --kubeconfig, and another of its contexts with --context", file, err)
	}
	return New(config)
}

// New makes clients of a configuration.
func New(config *rest.Config) (*Cluster, error) {
	// A live cluster is somebody's: hitless asks it at most so often, which is five times client-go's default and far below
	// what a controller does.
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = 25, 50
	config.UserAgent = "hitless"
	// One for both clients: what one of them finds out, the other need not.
	p := &patience{most: awayAtMost, pause: askAgain, try: answersSoon, clock: Wall{}}
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
		ContentConfig: rest.ContentConfig{ContentType: "application/json"}} // what people can read in a proxy's log
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client for %s: %w", config.Host, err)
	}
	k, err := klient.New(rest.CopyConfig(config))
	if err != nil {
		return nil, fmt.Errorf("making a client for %s: %w", config.Host, err)
	}
	// Through the API server pods are asked, and for one that cannot be reached the answer is 503: that is not the API server being
	// away, and asking again is the fleet's own business.
	config.QPS, config.Transport = -1, transport
	unpaced, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client for %s: %w", config.Host, err)
	}
	return &Cluster{Klient: k, Client: client, unpaced: unpaced, Server: config.Host, patience: p}, nil
}
