package topology

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
)

// wire is the node's end of its wire on the fabric.
func (n *Node) wire() string { return fmt.Sprintf("fab-n%d", n.Number) }

// Cut takes the node's wire off the fabric: what is sent to it is lost without a word, as with a machine that has no power.
func (n *Network) Cut(node *Node) error {
	link, err := netlink.LinkByName(node.wire())
	if err != nil {
		return fmt.Errorf("finding the wire of %s: %w", node.Name, err)
	}
	if err := netlink.LinkSetDown(link); err != nil {
		return fmt.Errorf("cutting the wire of %s: %w", node.Name, err)
	}
	return nil
}

// Rebuild makes a node anew, as after a power cycle: a namespace without a rule, a table or a connection, wired as the old
// one was. Its programs must have ended, and its pods' wires must be gone; whoever holds the node goes on using it.
func (n *Network) Rebuild(node *Node) error {
	if err := n.rebuild(node); err != nil {
		return fmt.Errorf("making %s anew: %w", node.Name, err)
	}
	return nil
}

func (n *Network) rebuild(node *Node) error {
	link, err := netlink.LinkByName(node.wire())
	if err != nil {
		return fmt.Errorf("finding its wire: %w", err)
	}
	if err := netlink.LinkDel(link); err != nil {
		return fmt.Errorf("taking its wire away: %w", err)
	}
	n.rhythm.Await()
	fresh, err := attach(node.Name, node.wire(), node.Addr)
	if fresh != nil {
		err = errors.Join(err, node.become(fresh))
	}
	if err != nil {
		return err
	}
	return node.Do(func() error {
		err := node.layPods()
		for _, other := range n.Nodes {
			if other != node {
				err = errors.Join(err, addRoute(other.PodCIDR, other.Addr))
			}
		}
		return err
	})
}
