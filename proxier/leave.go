package proxier

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/hitless/hitless/proxier/kernel"
)

// leave hands the node over to a kube-proxy that serves it already. New connections are its own by then: its rules translate
// before IPVS does, or, in mode ipvs, its virtual servers are the same ones. The proxier's go as their last connections end.
func (m *migration) leave(ctx context.Context) error {
	addrs, err := m.kernel.Addresses()
	if err != nil {
		return err
	}
	if err := m.served(ctx, addrs.Bound); err != nil {
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
		"stop dropping: %d elements that nobody keeps up to date; kube-proxy has its own", len(filters)); err != nil {
		return err
	}
	if m.to == "ipvs" {
		if err := m.step(func() error { return m.handOver(addrs.Bound) }, "leave the virtual servers to kube-proxy, with their connections; put %d addresses on its device, "+
			"and delete the proxier's and the tables of nftables", len(addrs.Bound)); err != nil {
			return err
		}
	} else if err := m.goAway(ctx, own); err != nil {
		return err
	}
	m.note("done")
	return nil
}

// apply carries out an operation on n things, if there are any.
func (m *migration) apply(op kernel.Op, n int) error {
	if n == 0 {
		return nil
	}
	return m.kernel.Apply(op)
}

// served is an error unless kube-proxy runs in the mode to go to, and its rules for these addresses' families are in the kernel.
func (m *migration) served(ctx context.Context, addrs []netip.Addr) error {
	mode := m.running(ctx)
	serves, err := m.left.Serves(m.to, addrs)
	if err != nil {
		return fmt.Errorf("looking whether kube-proxy serves already: %w", err)
	}
	if serves && mode == m.to {
		return nil
	}
	return fmt.Errorf("kube-proxy does not serve this node in mode %s yet: it answers /proxyMode at %s with %q, and its rules in the kernel are of: %s; "+
		"end `hitless proxier`, start kube-proxy, and say it again when its /healthz is 200", m.to, m.metrics, mode, orNothing(m.left.Modes()))
}

// handOver leaves all virtual servers where they are. A pass of kube-proxy in between may take an address off its device again
// while the proxier's still has it; so it is looked at afterwards.
func (m *migration) handOver(addrs []netip.Addr) error {
	if err := m.left.BindAddrs(addrs); err != nil {
		return err
	}
	_, err := m.linux.Cleanup(func(kernel.Key) bool { return true })
	return errors.Join(err, m.left.BindAddrs(addrs))
}

// goAway deletes what is the proxier's, as far as it is not needed any more.
func (m *migration) goAway(ctx context.Context, own []kernel.Key) error {
	if err := m.step(func() error { return m.drainAll(ctx, own) },
		"delete %d virtual servers, each when its last connection has ended, or after %v", len(own), m.drainGone); err != nil {
		return err
	}
	return m.step(func() error {
		_, err := m.linux.Cleanup(nil)
		return err
	}, "delete the device for virtual addresses and the tables of nftables")
}

// drainAll deletes virtual servers as their last connections end. Flows of UDP and SCTP move at once: conntrack forgets them,
// and their next packet is kube-proxy's.
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
			return fmt.Errorf("stopped while %d virtual servers still have connections; say it again: %w", len(own), ctx.Err())
		case <-time.After(m.drainInterval):
		}
	}
	return nil
}

// busy reports whether a virtual server has connections that would end with it.
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
