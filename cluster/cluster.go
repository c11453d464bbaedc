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
}

// requestDeadline bounds one request, watches apart: an API server that does not answer is an error, not a run that hangs.
const requestDeadline = 20 * time.Second

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
	config.QPS, config.Burst = 25, 50
	config.UserAgent = "hitless"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client for %s: %w", config.Host, err)
	}
	short := rest.CopyConfig(config)
	short.Timeout = requestDeadline
	k, err := klient.New(short)
	if err != nil {
		return nil, fmt.Errorf("making a client for %s: %w", config.Host, err)
	}
	return &Cluster{Klient: k, Client: client, Server: config.Host}, nil
}
