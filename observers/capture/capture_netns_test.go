//go:build netns

package capture

import (
	"bytes"
	"errors"
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// inNamespace calls f on a thread in a new network namespace, which ends with it.
func inNamespace(t *testing.T, f func() error) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // without an unlock: the thread ends with the goroutine
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			done <- err
			return
		}
		done <- f()
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// The capture of a loopback interface has the SYN, the SYN-ACK and the FINs of a connection, and the RST of a refused one, with times of
// the run.
func TestCaptureOfAnInterface(t *testing.T) {
	const begun = time.Hour
	epoch := time.Now().Add(-begun)
	var data []byte
	inNamespace(t, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		if err := netlink.LinkSetUp(lo); err != nil {
			return err
		}
		here := Place{Name: "here", Link: "lo", Do: func(f func() error) error { return f() }, Generation: func() int { return 0 }}
		c, err := Start([]Place{here}, func() time.Duration { return time.Since(epoch) })
		if err != nil {
			return err
		}
		if err := connectAndRefuse(); err != nil {
			return err
		}
		data, err = c.Stop()
		return err
	})
	counts := countPackets(t, data, begun)
	// Each packet is seen as it leaves and as it arrives.
	if want := (packetCounts{syn: 4, synACK: 2, fin: 4, rst: 2}); counts != want {
		t.Errorf("the capture has %+v, want %+v", counts, want)
	}
}

// connectAndRefuse opens and closes a connection, and tries a port without a listener.
func connectAndRefuse() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return err
	}
	server, err := l.Accept()
	if err != nil {
		return err
	}
	if err := client.Close(); err != nil {
		return err
	}
	if _, err := io.ReadAll(server); err != nil { // until the FIN has come
		return err
	}
	if err := server.Close(); err != nil {
		return err
	}
	refused, err := net.Dial("tcp", "127.0.0.1:1")
	if err == nil {
		return errors.Join(errors.New("a port without a listener accepts connections"), refused.Close())
	}
	return nil
}

type packetCounts struct{ syn, synACK, fin, rst int }

func countPackets(t *testing.T, data []byte, begun time.Duration) (n packetCounts) {
	t.Helper()
	r, err := pcapgo.NewNgReader(bytes.NewReader(data), pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	for {
		frame, info, err := r.ReadPacketData()
		if errors.Is(err, io.EOF) {
			return n
		}
		if err != nil {
			t.Fatal(err)
		}
		if at := time.Duration(info.Timestamp.UnixNano()); at < begun || at > begun+time.Minute {
			t.Errorf("a packet at %s of the run, which began the test at %s", at, begun)
		}
		var tcp layers.TCP
		if err := tcp.DecodeFromBytes(frame[offIP+20:], noFeedback{}); err != nil {
			t.Fatal(err)
		}
		switch {
		case tcp.SYN && tcp.ACK:
			n.synACK++
		case tcp.SYN:
			n.syn++
		case tcp.FIN:
			n.fin++
		case tcp.RST:
			n.rst++
		}
	}
}

type noFeedback struct{}

func (noFeedback) SetTruncated() {}

// A bridge floods frames whose receiver is gone. They pass the interface of another node, which drops them, and are not in its capture.
func TestCaptureLeavesOutFramesToOthers(t *testing.T) {
	var data []byte
	inNamespace(t, func() error {
		sender := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "sender"}, PeerName: "receiver"}
		if err := netlink.LinkAdd(sender); err != nil {
			return err
		}
		receiver, err := netlink.LinkByName("receiver")
		if err != nil {
			return err
		}
		if err := errors.Join(netlink.LinkSetUp(sender), netlink.LinkSetUp(receiver)); err != nil {
			return err
		}
		here := Place{Name: "here", Link: "receiver", Do: func(f func() error) error { return f() }, Generation: func() int { return 0 }}
		c, err := Start([]Place{here}, func() time.Duration { return time.Hour })
		if err != nil {
			return err
		}
		other := net.HardwareAddr{2, 0, 0, 0, 0, 99}
		for _, to := range []net.HardwareAddr{other, receiver.Attrs().HardwareAddr, other} {
			if err := sendSYN(sender.Attrs().Index, to); err != nil {
				return err
			}
		}
		data, err = c.Stop()
		return err
	})
	if counts := countPackets(t, data, time.Hour); counts != (packetCounts{syn: 1}) {
		t.Errorf("the capture has %+v, want the SYN to the interface itself", counts)
	}
}

// sendSYN sends a SYN in a frame to a hardware address.
func sendSYN(link int, to net.HardwareAddr) error {
	buffer := gopacket.NewSerializeBuffer()
	err := gopacket.SerializeLayers(buffer, gopacket.SerializeOptions{FixLengths: true},
		&layers.Ethernet{SrcMAC: make([]byte, 6), DstMAC: to, EthernetType: layers.EthernetTypeIPv4}, ip4(layers.IPProtocolTCP), &layers.TCP{SYN: true})
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return errors.Join(unix.Sendto(fd, buffer.Bytes(), 0, &unix.SockaddrLinklayer{Ifindex: link}), unix.Close(fd))
}
