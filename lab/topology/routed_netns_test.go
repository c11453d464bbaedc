//go:build netns

package topology

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
)

// A routed pod is no port of the bridge, and reaches what the other pods reach: each other, pods of the bridge, the node and other nodes. The
// first packets arrive.
func TestRoutedPods(t *testing.T) {
	home, err := NewNamespace("lab")
	if err != nil {
		t.Fatal(err)
	}
	defer home.Close()
	var n *Network
	if err := home.Do(func() (err error) { n, err = New(2); return err }); err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	first, second := n.Nodes[0], n.Nodes[1]
	pods := map[string]*Namespace{}
	for address, add := range map[string]func(string, netip.Addr) (*Namespace, error){
		"10.244.1.2": first.AddRoutedPod, "10.244.1.3": first.AddRoutedPod, "10.244.2.2": second.AddRoutedPod,
	} {
		pod, err := add("pod-"+address, netip.MustParseAddr(address))
		if err != nil {
			t.Fatal(err)
		}
		defer pod.Close()
		l, err := pod.Listen(t.Context(), "tcp", ":8080")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				c.Close()
			}
		}()
		pods[address] = pod
	}
	reaches := func(from *Namespace, target string, within time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		c, err := from.DialContext(ctx, "tcp", target+":8080")
		if err == nil {
			err = errors.Join(firstPacketsArrived(c), c.Close())
		}
		return err
	}
	for target := range pods {
		waitForLink(t, n.Client, target+":8080")
	}
	for _, from := range []*Namespace{first.Namespace, second.Namespace, n.Client, home, pods["10.244.1.2"], pods["10.244.1.3"], pods["10.244.2.2"]} {
		for target := range pods {
			if err := reaches(from, target, 10*time.Second); err != nil {
				t.Errorf("%s to %s: %v", from.Name, target, err)
			}
		}
	}
	gone := netip.MustParseAddr("10.244.1.3")
	if err := first.RemovePod(gone); err != nil {
		t.Fatal(err)
	}
	if err := reaches(second.Namespace, gone.String(), time.Second); err == nil {
		t.Error("a removed pod answers")
	}
	err = first.Do(func() error {
		link, err := netlink.LinkByName(podLink(netip.MustParseAddr("10.244.1.2")))
		if err == nil && link.Attrs().MasterIndex != 0 {
			t.Error("the link of a routed pod is a port of the bridge")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
