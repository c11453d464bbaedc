package proxier

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/hitless/hitless/proxier/linux"
	"github.com/hitless/hitless/proxier/watch"
)

// localModes are the ways to tell a pod's packet from one that comes from outside, by kube-proxy's names.
var localModes = []string{"ClusterCIDR", "NodeCIDR", "BridgeInterface", "InterfaceNamePrefix"}

// cidrAttempts is the time between looks for the pod addresses of a Node that has none yet.
const cidrAttempts = 2 * time.Second

// local tells the kernel how to know a pod's packet. What needs the API is asked for by podCIDRs.
func (s *settings) local(o *linux.Options) error {
	switch s.detectLocal {
	case "ClusterCIDR":
		return s.clusterCIDRs(o)
	case "NodeCIDR":
		o.ClusterCIDRs = s.nodeCIDRs
		return nil
	case "BridgeInterface":
		o.PodBridge = s.podBridge
		return interfaceName("--pod-bridge-interface", s.podBridge, s.detectLocal)
	case "InterfaceNamePrefix":
		o.PodInterfacePrefix = s.podPrefix
		return interfaceName("--pod-interface-name-prefix", s.podPrefix, s.detectLocal)
	}
	return fmt.Errorf("--detect-local-mode is %q; it can be %s", s.detectLocal, strings.Join(localModes, ", "))
}

// interfaceName checks the name of an interface, or its beginning: 1 to 15 bytes (IFNAMSIZ).
func interfaceName(flag, name, mode string) error {
	if len(name) < 1 || len(name) > 15 {
		return fmt.Errorf("%s is %q; --detect-local-mode=%s needs 1 to 15 characters there", flag, name, mode)
	}
	return nil
}

func (s *settings) clusterCIDRs(o *linux.Options) error {
	for _, text := range strings.Split(s.clusterCIDR, ",") {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return fmt.Errorf("reading --cluster-cidr %q: %w", s.clusterCIDR, err)
		}
		o.ClusterCIDRs = append(o.ClusterCIDRs, prefix)
	}
	return nil
}

// awaitCIDRs waits until the Node has the addresses of its pods, where they are what tells pods.
func (s *settings) awaitCIDRs(ctx context.Context, config *rest.Config, node string, log *slog.Logger) error {
	if s.detectLocal != "NodeCIDR" {
		return nil
	}
	for said := false; ; {
		var err error
		if s.nodeCIDRs, err = watch.PodCIDRs(ctx, config, node); err == nil {
			return nil
		}
		if !said {
			log.Warn("waiting for the pod addresses of the Node (--detect-local-mode=NodeCIDR)", "error", err)
			said = true
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the pod addresses of the Node: %w; the last try: %w", ctx.Err(), err)
		case <-time.After(cidrAttempts):
		}
	}
}
