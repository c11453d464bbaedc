//go:build netns

package topology

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"
)

// A pod that only sends reaches its node while other pods come and go. The node sends it nothing, so it keeps the link address that it
// resolved first.
func TestPodReachesItsNodeWhileOthersComeAndGo(t *testing.T) {
	n := created(t, Config{Nodes: 1})
	node := n.Nodes[0]
	var others []netip.Addr
	for i := range 12 {
		others = append(others, netip.MustParseAddr(fmt.Sprintf("10.244.1.%d", 10+i)))
	}
	add := func(addr netip.Addr) {
		pod, err := node.AddPod("other-"+addr.String(), addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { pod.Close() })
	}
	for _, addr := range others[:6] {
		add(addr)
	}
	sender, err := node.AddPod("sender", netip.MustParseAddr("10.244.1.2"))
	if err != nil {
		t.Fatal(err)
	}
	defer sender.Close()
	var at net.PacketConn
	if err := node.Do(func() (err error) { at, err = net.ListenPacket("udp4", "10.244.1.1:9"); return err }); err != nil {
		t.Fatal(err)
	}
	defer at.Close()
	var from net.Conn
	if err := sender.Do(func() (err error) { from, err = net.Dial("udp4", "10.244.1.1:9"); return err }); err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	if !arrives(t, from, at, 20) { // the first datagrams may be lost while the link comes up
		t.Fatal("the pod does not reach its node")
	}
	for _, addr := range others[:6] {
		if err := node.RemovePod(addr); err != nil {
			t.Fatal(err)
		}
		if !arrives(t, from, at, 1) {
			t.Errorf("the pod did not reach its node after %s left", addr)
		}
	}
	for _, addr := range others[6:] {
		add(addr)
		if !arrives(t, from, at, 1) {
			t.Errorf("the pod did not reach its node after %s came", addr)
		}
	}
}

// arrives reports whether one of so many datagrams arrives within a second.
func arrives(t *testing.T, from net.Conn, at net.PacketConn, tries int) bool {
	t.Helper()
	for range tries {
		if _, err := from.Write([]byte("?")); err != nil {
			t.Fatal(err)
		}
		if err := at.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, _, err := at.ReadFrom(make([]byte, 8)); err == nil {
			return true
		}
	}
	return false
}
