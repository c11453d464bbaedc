package capture

import (
	"bytes"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	"golang.org/x/net/bpf"
)

var (
	one4, two4 = net.IPv4(10, 0, 0, 1).To4(), net.IPv4(10, 0, 0, 2).To4()
	one6, two6 = net.ParseIP("fd00::1"), net.ParseIP("fd00::2")
)

func frame(t *testing.T, kind layers.EthernetType, all ...gopacket.SerializableLayer) []byte {
	t.Helper()
	buffer := gopacket.NewSerializeBuffer()
	all = append([]gopacket.SerializableLayer{&layers.Ethernet{SrcMAC: make([]byte, 6), DstMAC: make([]byte, 6), EthernetType: kind}}, all...)
	if err := gopacket.SerializeLayers(buffer, gopacket.SerializeOptions{FixLengths: true}, all...); err != nil {
		t.Fatal(err)
	}
	return append(buffer.Bytes(), make([]byte, 60)...) // frames have at least 60 bytes
}

func ip4(proto layers.IPProtocol) *layers.IPv4 {
	return &layers.IPv4{Version: 4, TTL: 64, Protocol: proto, SrcIP: one4, DstIP: two4}
}

func ip6(proto layers.IPProtocol) *layers.IPv6 {
	return &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: proto, SrcIP: one6, DstIP: two6}
}

func TestFilterKeepsWhatOpensClosesAndRefuses(t *testing.T) {
	vm, err := bpf.NewVM(filter())
	if err != nil {
		t.Fatal(err)
	}
	tcp, icmp := layers.IPProtocolTCP, layers.IPProtocolICMPv4
	options := ip4(tcp)
	options.Options = []layers.IPv4Option{{OptionType: 1}, {OptionType: 1}, {OptionType: 1}, {OptionType: 0}}
	fragment := ip4(tcp)
	fragment.FragOffset = 100
	v4, v6 := layers.EthernetTypeIPv4, layers.EthernetTypeIPv6
	for name, test := range map[string]struct {
		frame []byte
		kept  bool
	}{
		"SYN":                 {frame(t, v4, ip4(tcp), &layers.TCP{SYN: true}), true},
		"SYN-ACK":             {frame(t, v4, ip4(tcp), &layers.TCP{SYN: true, ACK: true}), true},
		"FIN":                 {frame(t, v4, ip4(tcp), &layers.TCP{FIN: true, ACK: true}), true},
		"RST":                 {frame(t, v4, ip4(tcp), &layers.TCP{RST: true}), true},
		"SYN with IP options": {frame(t, v4, options, &layers.TCP{SYN: true}), true},
		"ACK":                 {frame(t, v4, ip4(tcp), &layers.TCP{ACK: true}), false},
		"data":                {frame(t, v4, ip4(tcp), &layers.TCP{ACK: true, PSH: true}), false},
		"later fragment":      {frame(t, v4, fragment, &layers.TCP{SYN: true}), false},
		"UDP":                 {frame(t, v4, ip4(layers.IPProtocolUDP), &layers.UDP{}), false},
		"ICMP":                {frame(t, v4, ip4(icmp), &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(3, 3)}), true},
		"SYN over IPv6":       {frame(t, v6, ip6(tcp), &layers.TCP{SYN: true}), true},
		"RST over IPv6":       {frame(t, v6, ip6(tcp), &layers.TCP{RST: true}), true},
		"ACK over IPv6":       {frame(t, v6, ip6(tcp), &layers.TCP{ACK: true}), false},
		"UDP over IPv6":       {frame(t, v6, ip6(layers.IPProtocolUDP), &layers.UDP{}), false},
		"ICMPv6 error":        {frame(t, v6, ip6(layers.IPProtocolICMPv6), &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(1, 4)}), true},
		"neighbour discovery": {frame(t, v6, ip6(layers.IPProtocolICMPv6), &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(135, 0)}), false},
		"ARP":                 {frame(t, layers.EthernetTypeARP), false},
	} {
		n, err := vm.Run(test.frame)
		if err != nil {
			t.Fatal(err)
		}
		if kept := n > 0; kept != test.kept {
			t.Errorf("%s: kept %t, want %t", name, kept, test.kept)
		}
	}
}

func TestFileHasPlacesPacketsAndLosses(t *testing.T) {
	f := newFile([]string{"client", "node-1"})
	f.add(1, 2500*time.Millisecond, []byte("twelve bytes of a frame"))
	f.count(1, 7, 3)
	data, err := f.pcapng()
	if err != nil {
		t.Fatal(err)
	}
	r, err := pcapgo.NewNgReader(bytes.NewReader(data), pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	got, info, err := r.ReadPacketData()
	if err != nil {
		t.Fatal(err)
	}
	_, _, _ = r.ReadPacketData() // reads the statistics, which follow
	place, err := r.Interface(info.InterfaceIndex)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != "twelve bytes of a frame" || info.Timestamp.UnixNano() != int64(2500*time.Millisecond) || place.Name != "node-1" || place.Statistics.PacketsDropped != 3 {
		t.Errorf("%q at %s of %q with %d lost packets", got, info.Timestamp, place.Name, place.Statistics.PacketsDropped)
	}
}

func TestPacketsBeyondTheLimitCountAsLost(t *testing.T) {
	f := newFile([]string{"client"})
	f.size = maxBytes
	f.add(0, 0, []byte("one more"))
	if len(f.packets) != 0 || !slices.Equal(f.counts, []counts{{lost: 1}}) {
		t.Errorf("%d packets, %v", len(f.packets), f.counts)
	}
}
