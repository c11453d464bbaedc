package site

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hitless/hitless/cluster"
	"github.com/hitless/hitless/record"
)

// nodePathTimeout bounds an attempt over one address of a node.
const nodePathTimeout = time.Second

// nodePaths reaches Services over the node ports of a live cluster's nodes, at the first address of each that has ever
// answered.
type nodePaths struct {
	nodes []cluster.Node
	reach func(ctx context.Context, target string) error // nil error: a correct answer

	mu       sync.Mutex
	answered map[string]string // by node: the address
}

func newNodePaths(nodes []cluster.Node) *nodePaths {
	return &nodePaths{nodes: nodes, answered: map[string]string{}, reach: func(ctx context.Context, target string) error {
		return reachFromHere(ctx, "tcp", target)
	}}
}

// Over makes one attempt at the first port of a Service over a node.
func (p *nodePaths) Over(ctx context.Context, node string, _ record.Family, s *corev1.Service) error {
	addresses, err := p.addresses(node)
	if err != nil {
		return err
	}
	if len(s.Spec.Ports) == 0 || s.Spec.Ports[0].NodePort == 0 {
		return fmt.Errorf("the Service %s has no node port", s.Name)
	}
	var all error
	for _, a := range addresses {
		if err = p.attempt(ctx, net.JoinHostPort(a, strconv.Itoa(int(s.Spec.Ports[0].NodePort)))); err == nil {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.answered[node] = a
			return nil
		}
		all = errors.Join(all, err)
	}
	return all
}

func (p *nodePaths) attempt(ctx context.Context, target string) error {
	ctx, cancel := context.WithTimeout(ctx, nodePathTimeout)
	defer cancel()
	return p.reach(ctx, target)
}

// addresses are those of a node, or the one of them that has answered.
func (p *nodePaths) addresses(node string) ([]string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if a, has := p.answered[node]; has {
		return []string{a}, nil
	}
	i := slices.IndexFunc(p.nodes, func(n cluster.Node) bool { return n.Name == node })
	if i < 0 || len(p.nodes[i].Addresses) == 0 {
		return nil, fmt.Errorf("the node %s has no address", node)
	}
	return p.nodes[i].Addresses, nil
}
