//go:build linux

package topology

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
)

// fabricLink is the name of the fabric's end of the node's veth pair.
func (n *Node) fabricLink() string { return fmt.Sprintf("fab-n%d", n.Number) }

// Cut takes the node's link to the fabric down. Packets to the node are dropped without an error, as for a machine
// without power.
func (n *Network) Cut(node *Node) error {
	link, err := netlink.LinkByName(node.fabricLink())
	if err != nil {
		return fmt.Errorf("finding the link of %s: %w", node.Name, err)
	}
	if err := netlink.LinkSetDown(link); err != nil {
		return fmt.Errorf("taking down the link of %s: %w", node.Name, err)
	}
	return nil
}

// Rebuild replaces what Discard has removed and the node's network namespace, as after a power cycle: without rules, IPVS tables or
// connections, and with the links of the old one. The node's programs must have ended and its pods' links must be gone. References to
// the node stay valid.
func (n *Network) Rebuild(node *Node) error {
	if err := n.rebuild(node); err != nil {
		return fmt.Errorf("rebuilding %s: %w", node.Name, err)
	}
	return nil
}

func (n *Network) rebuild(node *Node) error {
	link, err := netlink.LinkByName(node.fabricLink())
	if err != nil {
		return fmt.Errorf("finding its link: %w", err)
	}
	if err := netlink.LinkDel(link); err != nil {
		return fmt.Errorf("deleting its link: %w", err)
	}
	n.pacer.Await()
	fresh, err := attach(node.Name, node.fabricLink(), node.links())
	if fresh != nil {
		err = errors.Join(err, node.replaceWith(fresh))
	}
	if err != nil {
		return err
	}
	err = node.Do(func() error {
		err := node.createPodNetwork()
		for _, other := range n.Nodes {
			if other != node {
				err = errors.Join(err, other.routeToPods())
			}
		}
		return err
	})
	if err != nil {
		return err
	}
	return errors.Join(node.Discard(), node.Boot(n.cfg))
}
