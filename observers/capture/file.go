package capture

import (
	"bytes"
	"fmt"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// maxBytes bounds a capture. Packets beyond it count as lost.
const maxBytes = 96 << 20

// file is a capture in memory. Packets of different places are not in order of time.
type file struct {
	names   []string
	packets []packet
	size    int
	counts  []counts
}

type packet struct {
	place int
	at    time.Duration
	data  []byte
}

// counts are of a place: packets that passed the filter, and lost ones.
type counts struct{ received, lost uint64 }

func newFile(names []string) *file { return &file{names: names, counts: make([]counts, len(names))} }

// add adds a packet of a place and copies its data.
func (f *file) add(place int, at time.Duration, data []byte) {
	if f.size += len(data); f.size > maxBytes {
		f.counts[place].lost++
		return
	}
	f.packets = append(f.packets, packet{place, at, bytes.Clone(data)})
}

func (f *file) count(place int, received, lost uint64) {
	f.counts[place].received += received
	f.counts[place].lost += lost
}

// pcapng encodes the capture.
func (f *file) pcapng() ([]byte, error) {
	var out bytes.Buffer
	w, err := f.writer(&out)
	if err != nil {
		return nil, fmt.Errorf("encoding the capture: %w", err)
	}
	for _, p := range f.packets {
		info := gopacket.CaptureInfo{Timestamp: time.Unix(0, int64(p.at)).UTC(), CaptureLength: len(p.data), Length: len(p.data), InterfaceIndex: p.place}
		if err := w.WritePacket(info, p.data); err != nil {
			return nil, fmt.Errorf("encoding a packet: %w", err)
		}
	}
	for i, n := range f.counts {
		if err := w.WriteInterfaceStats(i, pcapgo.NgInterfaceStatistics{PacketsReceived: n.received, PacketsDropped: n.lost}); err != nil {
			return nil, fmt.Errorf("encoding the number of lost packets: %w", err)
		}
	}
	if err := w.Flush(); err != nil {
		return nil, fmt.Errorf("encoding the capture: %w", err)
	}
	return out.Bytes(), nil
}

func (f *file) writer(out *bytes.Buffer) (w *pcapgo.NgWriter, err error) {
	for i, name := range f.names {
		link := pcapgo.NgInterface{Name: name, LinkType: layers.LinkTypeEthernet, SnapLength: snapLength, TimestampResolution: 9}
		if i == 0 {
			w, err = pcapgo.NewNgWriterInterface(out, link, pcapgo.NgWriterOptions{SectionInfo: pcapgo.NgSectionInfo{Application: "hitless"}})
		} else {
			_, err = w.AddInterface(link)
		}
		if err != nil {
			return nil, err
		}
	}
	return w, nil
}
