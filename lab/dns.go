package lab

import (
	"context"
	_ "embed" // for the objects of the cluster's DNS
	"fmt"
	"os"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hitless/hitless/lab/kube"
)

//go:embed dns.yaml
var dnsObjects []byte

// dnsAddress is the address of the DNS Service in dnsObjects.
const dnsAddress = "10.96.0.10"

// dnsReadyTimeout bounds the time until a pod of the DNS is ready.
const dnsReadyTimeout = time.Minute

// startDNS creates the cluster's DNS and waits until one of its pods is ready.
func (l *Lab) startDNS(ctx context.Context) error {
	l.cfg.Progress("starting the cluster's DNS")
	file := filepath.Join(l.cfg.Dir, "dns.yaml")
	if err := os.WriteFile(file, dnsObjects, 0o644); err != nil {
		return fmt.Errorf("writing the objects of the DNS: %w", err)
	}
	if err := kube.CreateObjects(ctx, l.Kubeconfig, nil, []string{file}); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, dnsReadyTimeout)
	defer cancel()
	ticker := time.NewTicker(250 * time.Millisecond)
	defer ticker.Stop()
	for {
		now, err := l.Client.AppsV1().Deployments(metav1.NamespaceSystem).Get(ctx, "coredns", metav1.GetOptions{})
		if err == nil && now.Status.ReadyReplicas > 0 {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("no pod of the cluster's DNS became ready within %s: %w (last answer: %v)", dnsReadyTimeout, ctx.Err(), err)
		}
	}
}
