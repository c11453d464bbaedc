package watch

import (
	"context"
	"fmt"
	"net/netip"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// PodCIDRs returns the ranges of addresses that a Node has for its pods; an error when it has none yet. It lists, since that is
// what the proxier may do.
func PodCIDRs(ctx context.Context, config *rest.Config, node string) ([]netip.Prefix, error) {
	config = rest.CopyConfig(config)
	config.ContentType, config.AcceptContentTypes = "application/json", "application/json"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client for %s: %w", config.Host, err)
	}
	list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", node).String()})
	if err != nil {
		return nil, fmt.Errorf("listing the Node %s: %w", node, err)
	}
	for i := range list.Items {
		n := &list.Items[i]
		if n.Name != node || len(n.Spec.PodCIDRs) == 0 {
			continue
		}
		var all []netip.Prefix
		for _, text := range n.Spec.PodCIDRs {
			p, err := netip.ParsePrefix(text)
			if err != nil {
				return nil, fmt.Errorf("reading the pod addresses of the Node %s: %w", node, err)
			}
			all = append(all, p)
		}
		return all, nil
	}
	return nil, fmt.Errorf("the Node %s is not there, or its spec.podCIDRs is empty", node)
}
