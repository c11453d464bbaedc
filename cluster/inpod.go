package cluster

import (
	"fmt"

	"k8s.io/client-go/rest"
)

// OpenInPod makes clients for the cluster that this process is a pod of, with the token of its service account, which is read
// again when the kubelet has renewed it. It asks the cluster nothing yet.
func OpenInPod() (*Cluster, error) {
	config, err := rest.InClusterConfig()
	if err != nil {
		return nil, fmt.Errorf("finding the cluster of this pod: %w; --in-cluster is for a pod with the token of a service account, "+
			"elsewhere name a kubeconfig with --kubeconfig FILE", err)
	}
	return New(config)
}
