package linux

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// batchSocket is a netlink socket for batches of requests. The kernel processes the requests of one datagram in
// order, continues after failures, and finishes before the send call returns. It replies to failed requests and to
// the last one.
type batchSocket struct {
	file     *os.File
	conn     syscall.RawConn
	sequence uint32
	requests []byte
	replies  []byte
}

func openBatches(protocol int) (*batchSocket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, protocol)
	if err != nil {
		return nil, fmt.Errorf("opening a netlink socket: %w", err)
	}
	b := &batchSocket{file: os.NewFile(uintptr(fd), "netlink"), replies: make([]byte, 1<<16)}
	if err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err == nil {
		b.conn, err = b.file.SyscallConn()
	}
	if err != nil {
		b.file.Close()
		return nil, fmt.Errorf("opening a netlink socket: %w", err)
	}
	return b, nil
}

// close may be called during a batch, which it ends.
func (b *batchSocket) close() { b.file.Close() }

// setDeadline sets the deadline of batches.
func (b *batchSocket) setDeadline(deadline time.Time) error {
	if err := b.file.SetDeadline(deadline); err != nil {
		return fmt.Errorf("setting the deadline of a netlink socket: %w", err)
	}
	return nil
}

// exchange sends n requests, which write appends with begin and end. It returns one error or nil per request. If the
// second result is an error, the outcome of all requests is unknown.
func (b *batchSocket) exchange(n int, write func(i int)) ([]error, error) {
	first := b.sequence + 1
	b.requests = b.requests[:0]
	last := 0
	for i := range n {
		last = len(b.requests)
		write(i)
	}
	flags := binary.NativeEndian.Uint16(b.requests[last+6:])
	binary.NativeEndian.PutUint16(b.requests[last+6:], flags|unix.NLM_F_ACK)
	var err error
	if failed := b.conn.Write(func(fd uintptr) bool {
		err = unix.Sendto(int(fd), b.requests, unix.MSG_DONTWAIT, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
		return !errors.Is(err, unix.EAGAIN)
	}); failed != nil || err != nil {
		return nil, fmt.Errorf("sending %d requests: %w", n, errors.Join(failed, err))
	}
	errs := make([]error, n)
	for {
		done, err := b.receive(errs, first)
		if done || err != nil {
			return errs, err
		}
	}
}

// receive reads the next replies, and reports whether the last request was answered.
func (b *batchSocket) receive(errs []error, first uint32) (done bool, err error) {
	n := 0
	if failed := b.conn.Read(func(fd uintptr) bool {
		n, _, err = unix.Recvfrom(int(fd), b.replies, unix.MSG_DONTWAIT)
		return !errors.Is(err, unix.EAGAIN)
	}); failed != nil || err != nil {
		return false, fmt.Errorf("receiving the replies to %d requests: %w", len(errs), errors.Join(failed, err))
	}
	for reply := b.replies[:n]; len(reply) >= unix.NLMSG_HDRLEN; {
		size := int(binary.NativeEndian.Uint32(reply))
		if size < unix.NLMSG_HDRLEN || size > len(reply) {
			return false, fmt.Errorf("a reply of %d bytes claims a length of %d", len(reply), size)
		}
		i := binary.NativeEndian.Uint32(reply[8:]) - first
		if binary.NativeEndian.Uint16(reply[4:]) == unix.NLMSG_ERROR && i < uint32(len(errs)) && size >= unix.NLMSG_HDRLEN+4 {
			if number := -int32(binary.NativeEndian.Uint32(reply[unix.NLMSG_HDRLEN:])); number != 0 {
				errs[i] = unix.Errno(number)
			}
			done = done || i == uint32(len(errs)-1)
		}
		reply = reply[min(len(reply), align(size)):]
	}
	return done, nil
}

// begin appends a request up to its attributes and returns its offset.
func (b *batchSocket) begin(kind, flags uint16, fixed ...byte) (at int) {
	b.sequence++
	at = len(b.requests)
	header := make([]byte, unix.NLMSG_HDRLEN)
	binary.NativeEndian.PutUint16(header[4:], kind)
	binary.NativeEndian.PutUint16(header[6:], unix.NLM_F_REQUEST|flags)
	binary.NativeEndian.PutUint32(header[8:], b.sequence)
	b.requests = append(append(b.requests, header...), fixed...)
	b.pad()
	return at
}

// end sets the length of the request at an offset.
func (b *batchSocket) end(at int) {
	binary.NativeEndian.PutUint32(b.requests[at:], uint32(len(b.requests)-at))
}

// nest appends the header of an attribute and returns its offset.
func (b *batchSocket) nest(kind uint16) (at int) {
	at = len(b.requests)
	b.requests = binary.NativeEndian.AppendUint16(b.requests, 0)
	b.requests = binary.NativeEndian.AppendUint16(b.requests, kind)
	return at
}

// unnest sets the length of the attribute at an offset.
func (b *batchSocket) unnest(at int) {
	binary.NativeEndian.PutUint16(b.requests[at:], uint16(len(b.requests)-at))
}

func (b *batchSocket) attribute(kind uint16, value ...byte) {
	at := b.nest(kind)
	b.requests = append(b.requests, value...)
	b.unnest(at)
	b.pad()
}

func (b *batchSocket) attribute32(kind uint16, value uint32) {
	at := b.nest(kind)
	b.requests = binary.NativeEndian.AppendUint32(b.requests, value)
	b.unnest(at)
}

func (b *batchSocket) pad() {
	for len(b.requests) != align(len(b.requests)) {
		b.requests = append(b.requests, 0)
	}
}

func align(n int) int { return (n + unix.NLMSG_ALIGNTO - 1) &^ (unix.NLMSG_ALIGNTO - 1) }
