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

// localModes are kube-proxy's names of the ways to recognise pod traffic.
var localModes = []string{"ClusterCIDR", "NodeCIDR", "BridgeInterface", "InterfaceNamePrefix"}

// cidrRetryInterval is the time between reads of the Node's pod CIDRs.
const cidrRetryInterval = 2 * time.Second

// detectLocalOptions sets how the kernel recognises pod traffic. awaitCIDRs reads what needs the API.
func (s *settings) detectLocalOptions(o *linux.Options) error {
	switch s.detectLocal {
	case "ClusterCIDR":
		return s.clusterCIDRs(o)
	case "NodeCIDR":
		o.ClusterCIDRs = s.nodeCIDRs
		return nil
	case "BridgeInterface":
		o.PodBridge = s.podBridge
		return checkInterfaceName("--pod-bridge-interface", s.podBridge, s.detectLocal)
	case "InterfaceNamePrefix":
		o.PodInterfacePrefix = s.podInterfacePrefix
		return checkInterfaceName("--pod-interface-name-prefix", s.podInterfacePrefix, s.detectLocal)
	}
	return fmt.Errorf("--detect-local-mode is %q; it must be one of %s", s.detectLocal, strings.Join(localModes, ", "))
}

// checkInterfaceName checks the length of an interface name or prefix: 1 to 15 bytes (IFNAMSIZ).
func checkInterfaceName(flag, name, mode string) error {
	if len(name) < 1 || len(name) > 15 {
		return fmt.Errorf("%s is %q; --detect-local-mode=%s needs 1 to 15 characters", flag, name, mode)
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

// awaitCIDRs waits for the Node's pod CIDRs in mode NodeCIDR.
func (s *settings) awaitCIDRs(ctx context.Context, config *rest.Config, node string, log *slog.Logger) error {
	if s.detectLocal != "NodeCIDR" {
		return nil
	}
	for logged := false; ; {
		var err error
		if s.nodeCIDRs, err = watch.PodCIDRs(ctx, config, node); err == nil {
			return nil
		}
		if !logged {
			log.Warn("waiting for the pod CIDRs of the Node (--detect-local-mode=NodeCIDR)", "error", err)
			logged = true
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the pod CIDRs of the Node: %w; last error: %w", ctx.Err(), err)
		case <-time.After(cidrRetryInterval):
		}
	}
}
