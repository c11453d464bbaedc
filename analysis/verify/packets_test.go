package verify

import (
	"bytes"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/hitless/hitless/record"
)

// wire writes the packets of connections as a capture has them.
type wire struct {
	t      testing.TB
	out    bytes.Buffer
	w      *pcapgo.NgWriter
	places map[string]int
	seq    uint32
}

func newWire(t testing.TB, nodes ...string) *wire {
	w := &wire{t: t, places: map[string]int{}}
	for i, name := range append([]string{clientPlace}, nodes...) {
		link := pcapgo.NgInterface{Name: name, LinkType: layers.LinkTypeEthernet, TimestampResolution: 9}
		var err error
		if i == 0 {
			w.w, err = pcapgo.NewNgWriterInterface(&w.out, link, pcapgo.DefaultNgWriterOptions)
		} else {
			_, err = w.w.AddInterface(link)
		}
		if err != nil {
			t.Fatal(err)
		}
		w.places[name] = i
	}
	return w
}

// capture ends the capture. lost is the number of packets that the client's interface lost.
func (w *wire) capture(lost uint64) *bytes.Reader {
	for _, i := range w.places {
		stats := pcapgo.NgInterfaceStatistics{}
		if i == 0 {
			stats.PacketsDropped = lost
		}
		if err := w.w.WriteInterfaceStats(i, stats); err != nil {
			w.t.Fatal(err)
		}
	}
	if err := w.w.Flush(); err != nil {
		w.t.Fatal(err)
	}
	return bytes.NewReader(w.out.Bytes())
}

func (w *wire) write(place string, at time.Duration, frame []byte) {
	info := gopacket.CaptureInfo{Timestamp: time.Unix(0, int64(at)), CaptureLength: len(frame), Length: len(frame), InterfaceIndex: w.places[place]}
	if err := w.w.WritePacket(info, frame); err != nil {
		w.t.Fatal(err)
	}
}

// network is the IP header between two addresses of a family.
func network(from, to netip.Addr, proto layers.IPProtocol) gopacket.SerializableLayer {
	if from.Is6() {
		return &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: proto, SrcIP: from.AsSlice(), DstIP: to.AsSlice()}
	}
	return &layers.IPv4{Version: 4, TTL: 64, Protocol: proto, SrcIP: net.IP(from.AsSlice()), DstIP: net.IP(to.AsSlice())}
}

func (w *wire) serialize(all ...gopacket.SerializableLayer) []byte {
	buffer := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buffer, gopacket.SerializeOptions{FixLengths: true}, all...); err != nil {
		w.t.Fatal(err)
	}
	return buffer.Bytes()
}

func ethernet(a netip.Addr) *layers.Ethernet {
	kind := layers.EthernetTypeIPv4
	if a.Is6() {
		kind = layers.EthernetTypeIPv6
	}
	return &layers.Ethernet{SrcMAC: make([]byte, 6), DstMAC: make([]byte, 6), EthernetType: kind}
}

func (w *wire) tcp(from, to netip.AddrPort, t *layers.TCP, data int) []byte {
	t.SrcPort, t.DstPort = layers.TCPPort(from.Port()), layers.TCPPort(to.Port())
	return w.serialize(ethernet(from.Addr()), network(from.Addr(), to.Addr(), layers.IPProtocolTCP), t, gopacket.Payload(make([]byte, data)))
}

// connect writes the packets of an attempt of a class over a node.
func (w *wire) connect(a *record.Attempt, target netip.AddrPort, node string) {
	w.seq += 100_000
	const server = 7_000_000
	begun, isn := a.Start+10*time.Microsecond, w.seq
	client := func(at time.Duration, t layers.TCP) { w.write(clientPlace, at, w.tcp(a.Source, target, &t, 0)) }
	back := func(at time.Duration, t layers.TCP, data int) {
		w.write(clientPlace, at, w.tcp(target, a.Source, &t, data))
	}
	syn := func(at time.Duration) {
		client(at, layers.TCP{SYN: true, Seq: isn})
		if node != "" {
			w.write(node, at+20*time.Microsecond, w.tcp(a.Source, target, &layers.TCP{SYN: true, Seq: isn}, 0))
		}
	}
	syn(begun)
	connected := begun + 300*time.Microsecond
	switch a.Class {
	case record.ConnectTimeout:
		syn(begun + time.Second)
		return
	case record.Refused:
		back(connected, layers.TCP{RST: true, ACK: true, Ack: isn + 1}, 0)
		return
	case record.Rejected:
		w.icmp(connected, a.Source, target, isn, layers.ICMPv4CodePort)
		return
	case record.Unreachable:
		w.icmp(connected, a.Source, target, isn, layers.ICMPv4CodeHost)
		return
	case record.Delayed:
		syn(begun + time.Second)
		connected = begun + 1001*time.Millisecond
	}
	back(connected, layers.TCP{SYN: true, ACK: true, Seq: server, Ack: isn + 1}, 0)
	switch a.Class {
	case record.Reset:
		back(connected+time.Millisecond, layers.TCP{RST: true, Seq: server + 1}, 0)
	case record.Closed:
		back(connected+time.Millisecond, layers.TCP{FIN: true, ACK: true, Seq: server + 1, Ack: isn + 50}, 0)
		client(connected+2*time.Millisecond, layers.TCP{FIN: true, ACK: true, Seq: isn + 50, Ack: server + 2})
	case record.ReplyTimeout:
		client(connected+time.Second, layers.TCP{FIN: true, ACK: true, Seq: isn + 50, Ack: server + 1})
	default:
		client(connected+time.Millisecond, layers.TCP{FIN: true, ACK: true, Seq: isn + 50, Ack: server + 301})
		back(connected+2*time.Millisecond, layers.TCP{FIN: true, ACK: true, Seq: server + 301, Ack: isn + 51}, 0)
	}
}

// icmp writes an ICMP error about a SYN, with as much of the SYN as routers quote at least.
func (w *wire) icmp(at time.Duration, client, target netip.AddrPort, seq uint32, code uint8) {
	quoted := w.serialize(network(client.Addr(), target.Addr(), layers.IPProtocolTCP),
		&layers.TCP{SrcPort: layers.TCPPort(client.Port()), DstPort: layers.TCPPort(target.Port()), SYN: true, Seq: seq})
	w.write(clientPlace, at, w.serialize(ethernet(client.Addr()), network(target.Addr(), client.Addr(), layers.IPProtocolICMPv4),
		&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(layers.ICMPv4TypeDestinationUnreachable, code)}, gopacket.Payload(quoted[:28])))
}

func reader(w *wire) *bytes.Reader { return bytes.NewReader(w.out.Bytes()) }
