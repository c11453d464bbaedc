package proxier

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/hitless/hitless/proxier/kernel"
)

// toKubeProxy hands the node over to a kube-proxy that serves it already. New connections already belong to
// kube-proxy: its rules translate before IPVS does, or, in mode ipvs, it uses the same virtual servers. The proxier's
// virtual servers are deleted as their last connections end.
func (m *migration) toKubeProxy(ctx context.Context) error {
	addrs, err := m.kernel.Addresses()
	if err != nil {
		return err
	}
	if err := m.requireServing(ctx, addrs.Bound); err != nil {
		return err
	}
	elements, err := m.kernel.Elements()
	if err != nil {
		return err
	}
	var filters []kernel.Element
	var own []kernel.Key
	for _, e := range elements {
		switch e.Set {
		case kernel.Drop, kernel.Restricted, kernel.Allowed:
			filters = append(filters, e)
		}
		if e.Set.RecordsOwnership() && m.to != "ipvs" && !slices.Contains(own, e.Key) {
			own = append(own, e.Key)
		}
	}
	slices.SortFunc(own, kernel.Key.Compare)
	if err := m.step(func() error { return m.apply(kernel.ChangeSets{Remove: filters}, len(filters)) },
		"remove %d drop and source range elements; kube-proxy has its own", len(filters)); err != nil {
		return err
	}
	if m.to == "ipvs" {
		if err := m.step(func() error { return m.handOver(addrs.Bound) }, "keep the virtual servers and their connections for kube-proxy; add %d addresses to its device, "+
			"and delete the proxier's addresses and nftables tables", len(addrs.Bound)); err != nil {
			return err
		}
	} else if err := m.removeBundled(ctx, own); err != nil {
		return err
	}
	m.printNote("done")
	return nil
}

// apply executes an operation on n objects unless n is 0.
func (m *migration) apply(op kernel.Op, n int) error {
	if n == 0 {
		return nil
	}
	return m.kernel.Apply(op)
}

// requireServing returns an error unless kube-proxy runs in the target mode and its rules for the families of the
// addresses exist.
func (m *migration) requireServing(ctx context.Context, addrs []netip.Addr) error {
	mode, err := m.runningMode(ctx)
	if err != nil {
		return err
	}
	serves, err := m.kubeProxy.Serves(m.to, addrs)
	if err != nil {
		return fmt.Errorf("checking whether kube-proxy serves: %w", err)
	}
	if serves && mode == m.to {
		return nil
	}
	return fmt.Errorf("kube-proxy does not serve this node in mode %s yet: /proxyMode at %s returns %q, and the kernel has rules of: %s; "+
		"stop `hitless proxier`, start kube-proxy, and run the command again when its /healthz returns 200", m.to, cmp.Or(m.metrics, defaultMetrics), mode, listOrNothing(m.kubeProxy.Modes()))
}

// handOver keeps all virtual servers. A pass of kube-proxy during the cleanup may remove addresses from its device
// again, so they are added again afterwards.
func (m *migration) handOver(addrs []netip.Addr) error {
	if err := m.kubeProxy.BindAddrs(addrs); err != nil {
		return err
	}
	_, err := m.linux.Cleanup(func(kernel.Key) bool { return true })
	return errors.Join(err, m.kubeProxy.BindAddrs(addrs))
}

// removeBundled deletes the proxier's state once it is unused.
func (m *migration) removeBundled(ctx context.Context, own []kernel.Key) error {
	if err := m.step(func() error { return m.drainAll(ctx, own) },
		"delete %d virtual servers, each after its last connection has ended, or after %v", len(own), m.drainGone); err != nil {
		return err
	}
	return m.step(func() error {
		_, err := m.linux.Cleanup(nil)
		return err
	}, "delete the virtual addresses and the nftables tables")
}

// drainAll deletes virtual servers as their last connections end. UDP and SCTP flows move at once: their conntrack
// entries are deleted, and kube-proxy handles the next packet.
func (m *migration) drainAll(ctx context.Context, own []kernel.Key) error {
	deadline := time.Now().Add(m.drainGone)
	for len(own) > 0 {
		var gone, left []kernel.Key
		for _, k := range own {
			busy, err := m.busy(k)
			switch {
			case err != nil:
				return err
			case busy && time.Now().Before(deadline):
				left = append(left, k)
			default:
				gone = append(gone, k)
			}
		}
		if err := m.delete(gone); err != nil {
			return err
		}
		if own = left; len(own) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("stopped while %d virtual servers still have connections; run the command again: %w", len(own), ctx.Err())
		case <-time.After(m.drainInterval):
		}
	}
	return nil
}

// busy reports whether a virtual server has connections that its deletion would cut.
func (m *migration) busy(k kernel.Key) (bool, error) {
	s, _, err := m.kernel.Server(k)
	if err != nil || !k.Protocol.Drains() {
		return false, err
	}
	return slices.ContainsFunc(s.Reals, func(r kernel.Real) bool { return r.Active+r.Inactive > 0 }), nil
}

func (m *migration) delete(keys []kernel.Key) error {
	var failed []error
	var flows []kernel.FlowFilter
	for _, k := range keys {
		failed = append(failed, m.kernel.Apply(kernel.DeleteVirtual{Key: k}))
		flows = append(flows, kernel.FlowFilter{Key: k})
	}
	return errors.Join(errors.Join(failed...), m.apply(kernel.ForgetFlows{Filters: flows}, len(flows)))
}
