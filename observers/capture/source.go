package capture

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"time"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// source is the packet socket of a place: packet(7).
type source struct {
	place      Place
	number     int       // of the place
	epoch      time.Time // when the run began
	fd         int
	opened     bool
	generation int // of the place, which the socket was opened in
	received   uint64
	lost       uint64
	buffer     [snapLength]byte
	control    [64]byte
}

// bufferBytes holds the packets of a second at 5,000 attempts per second.
const bufferBytes = 32 << 20

// open opens the socket in the place's namespace. The filter is set before the socket sees its first packet.
func (s *source) open() error {
	raw, err := bpf.Assemble(filter())
	if err != nil {
		return fmt.Errorf("assembling the filter: %w", err)
	}
	s.generation = s.place.Generation()
	return s.place.Do(func() error {
		index, err := indexOf(s.place.Link)
		if err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("opening a packet socket: %w", err)
		}
		if err := prepare(fd, index, raw); err != nil {
			return errors.Join(err, unix.Close(fd))
		}
		s.fd, s.opened = fd, true
		return nil
	})
}

// indexOf is the number of an interface; the error for one that is not there is ENODEV, as that of bind.
func indexOf(name string) (int, error) {
	links, err := net.Interfaces()
	if err != nil {
		return 0, fmt.Errorf("reading the interfaces: %w", err)
	}
	for _, l := range links {
		if l.Name == name {
			return l.Index, nil
		}
	}
	return 0, fmt.Errorf("finding the interface %s: %w", name, unix.ENODEV)
}

func prepare(fd, link int, program []bpf.RawInstruction) error {
	filters := make([]unix.SockFilter, len(program))
	for i, p := range program {
		filters[i] = unix.SockFilter{Code: p.Op, Jt: p.Jt, Jf: p.Jf, K: p.K}
	}
	if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(filters)), Filter: &filters[0]}); err != nil {
		return fmt.Errorf("setting the filter: %w", err)
	}
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, bufferBytes) != nil { // without the right to it
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, bufferBytes); err != nil {
			return fmt.Errorf("setting the size of the buffer: %w", err)
		}
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1); err != nil {
		return fmt.Errorf("asking for time stamps: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: networkOrder(unix.ETH_P_ALL), Ifindex: link}); err != nil {
		return fmt.Errorf("binding to the interface: %w", err)
	}
	return nil
}

func networkOrder(n uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, n))
}

// drain passes the waiting packets to add, with their times of the run. It moves to the namespace that replaced the place's.
func (s *source) drain(add func(place int, at time.Duration, data []byte)) error {
	for s.opened {
		n, controls, _, from, err := unix.Recvmsg(s.fd, s.buffer[:], s.control[:], unix.MSG_DONTWAIT)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.ENETDOWN) { // the interface is going away
			break
		}
		if err != nil {
			return fmt.Errorf("reading packets: %w", err)
		}
		if link, is := from.(*unix.SockaddrLinklayer); is && link.Pkttype == unix.PACKET_OTHERHOST {
			continue // a bridge floods frames to a node without power to all others
		}
		at, err := stampOf(s.control[:controls])
		if err != nil {
			return err
		}
		add(s.number, at.Sub(s.epoch), s.buffer[:n])
	}
	if s.opened && s.place.Generation() == s.generation {
		return nil
	}
	return s.move()
}

// move opens the socket in the new namespace of the place. Its interface may not exist yet: then a later drain tries again.
func (s *source) move() error {
	if _, _, err := s.statistics(); err != nil {
		return err
	}
	if err := s.close(); err != nil {
		return err
	}
	if err := s.open(); !errors.Is(err, unix.ENODEV) {
		return err
	}
	return nil
}

// stampOf is the kernel's time stamp of a packet.
func stampOf(control []byte) (time.Time, error) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return time.Time{}, fmt.Errorf("reading a time stamp: %w", err)
	}
	for _, m := range messages {
		if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SCM_TIMESTAMPNS && len(m.Data) >= int(unsafe.Sizeof(unix.Timespec{})) {
			t := (*unix.Timespec)(unsafe.Pointer(&m.Data[0]))
			return time.Unix(t.Unix()), nil
		}
	}
	return time.Time{}, errors.New("a packet has no time stamp")
}

// statistics are the packets that passed the filter, and those of them that found the buffer full. Reading resets the kernel's counts.
func (s *source) statistics() (received, lost uint64, err error) {
	if s.opened {
		stats, err := unix.GetsockoptTpacketStats(s.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
		if err != nil {
			return 0, 0, fmt.Errorf("reading the number of lost packets: %w", err)
		}
		s.received, s.lost = s.received+uint64(stats.Packets), s.lost+uint64(stats.Drops)
	}
	return s.received, s.lost, nil
}

func (s *source) close() error {
	if !s.opened {
		return nil
	}
	s.opened = false
	return unix.Close(s.fd)
}
