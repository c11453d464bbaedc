package verify

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// packet is what a captured packet says about a connection.
type packet struct {
	at       time.Duration // of the run
	from, to netip.AddrPort
	seq, ack uint32
	payload  uint32 // bytes of data
	syn, fin bool
	rst      bool
	isACK    bool
	icmp     *icmpError // of an ICMP error; from, to and seq are then of the quoted packet
}

// icmpError is the type and code of an ICMP error.
type icmpError struct {
	six       bool
	typ, code uint8
}

// capture is the content of a capture, by place. The packets of a place are in order of time.
type capture struct {
	packets map[string][]packet
	lost    map[string]uint64
	unsaid  []string // places that do not tell how many packets they lost
}

// readCapture reads the format pcapng, as package observers/capture writes it.
func readCapture(r io.Reader) (*capture, error) {
	in, err := pcapgo.NewNgReader(r, pcapgo.NgReaderOptions{WantMixedLinkType: true})
	if err != nil {
		return nil, fmt.Errorf("reading the head of the capture: %w", err)
	}
	c := &capture{packets: map[string][]packet{}, lost: map[string]uint64{}}
	d := newDecoder()
	for n := 1; ; n++ {
		data, info, err := in.ReadPacketData()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("reading packet %d of the capture: %w", n, err)
		}
		place, err := in.Interface(info.InterfaceIndex)
		if err != nil {
			return nil, fmt.Errorf("reading packet %d of the capture: %w", n, err)
		}
		if p, ok := d.decode(data); ok {
			p.at = time.Duration(info.Timestamp.UnixNano())
			c.packets[place.Name] = append(c.packets[place.Name], p)
		}
	}
	for i := range in.NInterfaces() {
		place, err := in.Interface(i)
		if err != nil {
			return nil, fmt.Errorf("reading the places of the capture: %w", err)
		}
		if s := place.Statistics; s.LastUpdate.IsZero() || s.PacketsDropped == pcapgo.NgNoValue64 { // no block of statistics, or one without the number
			c.unsaid = append(c.unsaid, place.Name)
		} else {
			c.lost[place.Name] = place.Statistics.PacketsDropped
		}
		slices.SortStableFunc(c.packets[place.Name], func(a, b packet) int { return int(a.at - b.at) })
	}
	return c, nil
}

// decoder decodes frames. It is not safe for concurrent use.
type decoder struct {
	parser  *gopacket.DecodingLayerParser
	ether   layers.Ethernet
	ip4     layers.IPv4
	ip6     layers.IPv6
	tcp     layers.TCP
	icmp4   layers.ICMPv4
	icmp6   layers.ICMPv6
	decoded []gopacket.LayerType
}

func newDecoder() *decoder {
	d := &decoder{}
	d.parser = gopacket.NewDecodingLayerParser(layers.LayerTypeEthernet, &d.ether, &d.ip4, &d.ip6, &d.tcp, &d.icmp4, &d.icmp6)
	d.parser.IgnoreUnsupported = true
	return d
}

// decode reports false for a frame that is neither TCP nor an ICMP error about TCP.
func (d *decoder) decode(frame []byte) (p packet, ok bool) {
	_ = d.parser.DecodeLayers(frame, &d.decoded) // packets are cut off; what was decoded counts
	var from, to netip.Addr
	var size int // of the IP payload
	for _, layer := range d.decoded {
		switch layer {
		case layers.LayerTypeIPv4:
			from, to = address(d.ip4.SrcIP), address(d.ip4.DstIP)
			size = int(d.ip4.Length) - 4*int(d.ip4.IHL)
		case layers.LayerTypeIPv6:
			from, to = address(d.ip6.SrcIP), address(d.ip6.DstIP)
			size = int(d.ip6.Length)
		case layers.LayerTypeTCP:
			t := &d.tcp
			return packet{from: netip.AddrPortFrom(from, uint16(t.SrcPort)), to: netip.AddrPortFrom(to, uint16(t.DstPort)), seq: t.Seq, ack: t.Ack,
				payload: uint32(max(0, size-4*int(t.DataOffset))), syn: t.SYN, fin: t.FIN, rst: t.RST, isACK: t.ACK}, true
		case layers.LayerTypeICMPv4:
			c := d.icmp4.TypeCode
			return quoted(&icmpError{false, c.Type(), c.Code()}, d.icmp4.Payload)
		case layers.LayerTypeICMPv6:
			c := d.icmp6.TypeCode
			if len(d.icmp6.Payload) < 4 { // unused bytes before the quoted packet
				return p, false
			}
			return quoted(&icmpError{true, c.Type(), c.Code()}, d.icmp6.Payload[4:])
		}
	}
	return p, false
}

// quoted reads the packet that an ICMP error quotes: its addresses, ports and sequence number (RFC 792, 4443).
func quoted(e *icmpError, data []byte) (p packet, ok bool) {
	const ports = 8 // of the TCP header, with the sequence number
	var from, to netip.Addr
	var header int
	switch {
	case !e.six && len(data) >= 20 && data[0]>>4 == 4 && data[9] == uint8(layers.IPProtocolTCP):
		from, to, header = address(data[12:16]), address(data[16:20]), 4*int(data[0]&0xf)
	case e.six && len(data) >= 40 && data[0]>>4 == 6 && data[6] == uint8(layers.IPProtocolTCP):
		from, to, header = address(data[8:24]), address(data[24:40]), 40
	default:
		return p, false
	}
	if len(data) < header+ports {
		return p, false
	}
	t := data[header:]
	return packet{from: netip.AddrPortFrom(from, binary.BigEndian.Uint16(t)), to: netip.AddrPortFrom(to, binary.BigEndian.Uint16(t[2:])),
		seq: binary.BigEndian.Uint32(t[4:]), icmp: e}, true
}

func address(ip []byte) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}
