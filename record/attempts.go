package record

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"
)

// attempts.bin: the magic, then blocks with checksums (block.go) of frames. A frame is 'S' (a string of the table: uvarint length, bytes;
// ids count from 1), 'A' (an attempt: varints and string ids in the order of Write) or 'B' (a Bucket, in the order of WriteBucket). Writers never
// go back, so a stream that ends early is readable up to its last complete block, and says that it ended early.
const AttemptsMagic = "hitless attempts 3\n"

// AttemptWriter writes attempts in the form of attempts.bin. It is not safe for concurrent use.
type AttemptWriter struct {
	w       io.Writer
	strings map[string]uint64
	head    blockHead // of the block
	frames  []byte    // of the block
	buf     []byte
	started bool // the magic is written
	err     error
}

// NewAttemptWriter returns a writer to w. It writes the magic with the first block, or by Flush.
func NewAttemptWriter(w io.Writer) *AttemptWriter {
	return &AttemptWriter{w: w, strings: map[string]uint64{"": 0}, head: newBlockHead()}
}

// Write appends one attempt; the first error sticks and is returned by every later call.
func (w *AttemptWriter) Write(a Attempt) error {
	if w.err != nil {
		return w.err
	}
	words := [...]string{a.Backend, a.Node, a.Generation, a.Client, a.Detail}
	for _, s := range words {
		w.define(s)
	}
	b := append(w.buf[:0], 'A')
	for _, v := range [...]uint64{uint64(a.Lane), a.Seq, uint64(a.Class), uint64(a.Retrans)} {
		b = binary.AppendUvarint(b, v)
	}
	for _, d := range [...]time.Duration{a.Intended, a.Start, a.Connect, a.Total, a.TupleAge, a.Terminating} {
		b = binary.AppendVarint(b, int64(d))
	}
	for _, s := range words {
		b = binary.AppendUvarint(b, w.strings[s])
	}
	b = appendBytes(b, addrBytes(a.Source.Addr()))
	b = binary.AppendUvarint(b, uint64(a.Source.Port()))
	b = appendBytes(b, addrBytes(a.Offender))
	w.buf = b
	w.head.cover(a.Intended, a.Intended)
	w.put(b)
	return w.full()
}

// full writes the block when it is complete.
func (w *AttemptWriter) full() error {
	if len(w.frames) < blockBytes {
		return w.err
	}
	return w.Flush()
}

// Flush ends the block and writes what is buffered.
func (w *AttemptWriter) Flush() error {
	if w.err != nil {
		return w.err
	}
	var out []byte
	if !w.started {
		out, w.started = append(out, AttemptsMagic...), true
	}
	if len(w.frames) > maxBlock {
		w.err = fmt.Errorf("a block of attempts has %d bytes, %d are the most", len(w.frames), maxBlock)
		return w.err
	}
	if len(w.frames) > 0 {
		out = append(append(out, w.head.encode(w.frames)...), w.frames...)
		w.head, w.frames = newBlockHead(), w.frames[:0]
	}
	if len(out) > 0 {
		_, w.err = w.w.Write(out) // one call, so that a kill leaves whole blocks
	}
	return w.err
}

func (w *AttemptWriter) define(s string) {
	if _, known := w.strings[s]; known {
		return
	}
	w.strings[s] = uint64(len(w.strings))
	w.put(appendBytes([]byte{'S'}, []byte(s)))
}

func (w *AttemptWriter) put(b []byte) { w.frames = append(w.frames, b...) }

func appendBytes(b, data []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(data))), data...)
}

func addrBytes(a netip.Addr) []byte {
	if !a.IsValid() {
		return nil
	}
	return a.AsSlice()
}

// AttemptReader reads what an AttemptWriter wrote.
type AttemptReader struct {
	in      *bufio.Reader
	at      int64         // of in, in bytes
	r       *bytes.Reader // frames of the block
	block   []byte        // its memory
	strings []string
	started bool
}

// NewAttemptReader reads from r; the header is checked by the first Read.
func NewAttemptReader(r io.Reader) *AttemptReader {
	return &AttemptReader{in: bufio.NewReaderSize(r, blockBytes), r: bytes.NewReader(nil), strings: []string{""}}
}

// Entry is an attempt, or a bucket of attempts.
type Entry struct {
	Attempt
	Bucket *Bucket // nil for an attempt
}

// Read returns the next attempt, io.EOF at the end, and io.ErrUnexpectedEOF when the stream ends inside a block. A bucket
// is an error: it can't be read as an attempt. Nothing of a block is returned whose checksum is wrong.
func (r *AttemptReader) Read() (Attempt, error) {
	e, err := r.Next()
	if err == nil && e.Bucket != nil {
		err = errThinned
	}
	return e.Attempt, err
}

var errThinned = errors.New("the record is thinned: it has buckets of attempts where nothing happened, so not every attempt can be looked at by itself")

// Next returns what comes next, with the errors of Read.
func (r *AttemptReader) Next() (Entry, error) {
	if !r.started {
		head := make([]byte, len(AttemptsMagic))
		if _, err := io.ReadFull(r.in, head); err != nil {
			return Entry{}, fmt.Errorf("reading the header of the attempts: %w", midFrame(err))
		}
		if string(head) != AttemptsMagic {
			return Entry{}, fmt.Errorf("these are not attempts of a version that this program reads: header %q, want %q", head, AttemptsMagic)
		}
		r.started, r.at = true, int64(len(head))
	}
	for {
		if err := r.fill(); err != nil {
			return Entry{}, err
		}
		kind, err := r.r.ReadByte()
		if err != nil {
			return Entry{}, err
		}
		switch kind {
		case 'S':
			s, err := r.bytes(1 << 16)
			if err != nil {
				return Entry{}, err
			}
			r.strings = append(r.strings, string(s))
		case 'A':
			a, err := r.attempt()
			return Entry{Attempt: a}, err
		case 'B':
			b, err := r.bucket()
			return Entry{Bucket: b}, err
		default:
			return Entry{}, fmt.Errorf("unknown frame %q in the attempts: the file is damaged", kind)
		}
	}
}

// fill reads the next block when the last one is over.
func (r *AttemptReader) fill() error {
	if r.r.Len() > 0 {
		return nil
	}
	h, frames, err := readBlock(r.in, r.block)
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return err
	case err != nil:
		return fmt.Errorf("the block of attempts at byte %d is damaged: %w", r.at, err)
	}
	r.block, r.at = frames, r.at+int64(blockHeadLen+h.length)
	r.r.Reset(frames)
	return nil
}

func (r *AttemptReader) attempt() (Attempt, error) {
	var a Attempt
	f := fields{r: r}
	a.Lane, a.Seq, a.Class, a.Retrans = uint16(f.uint()), f.uint(), Class(f.uint()), uint8(f.uint())
	for _, d := range []*time.Duration{&a.Intended, &a.Start, &a.Connect, &a.Total, &a.TupleAge, &a.Terminating} {
		*d = time.Duration(f.int())
	}
	for _, s := range []*string{&a.Backend, &a.Node, &a.Generation, &a.Client, &a.Detail} {
		*s = f.word()
	}
	source, port := f.addr(), uint16(f.uint())
	if source.IsValid() {
		a.Source = netip.AddrPortFrom(source, port)
	}
	a.Offender = f.addr()
	if f.err == nil && (a.Class < OK || a.Class > WrongAnswer) {
		f.err = fmt.Errorf("attempt %d of lane %d has no known class (%d): the file is damaged", a.Seq, a.Lane, a.Class)
	}
	return a, f.err
}

func (r *AttemptReader) bytes(most uint64) ([]byte, error) {
	n, err := binary.ReadUvarint(r.r)
	if err != nil {
		return nil, midFrame(err)
	}
	if n > most {
		return nil, fmt.Errorf("a string of %d bytes in the attempts: the file is damaged", n)
	}
	if n > uint64(r.r.Len()) {
		return nil, io.ErrUnexpectedEOF
	}
	b := make([]byte, n)
	_, err = io.ReadFull(r.r, b)
	return b, midFrame(err)
}

// fields reads the fields of one frame; the first error sticks.
type fields struct {
	r   *AttemptReader
	err error
}

func (f *fields) uint() uint64 {
	v, err := binary.ReadUvarint(f.r.r)
	f.keep(err)
	return v
}

func (f *fields) int() int64 {
	v, err := binary.ReadVarint(f.r.r)
	f.keep(err)
	return v
}

func (f *fields) word() string {
	id := f.uint()
	if id >= uint64(len(f.r.strings)) {
		f.keep(fmt.Errorf("string %d of %d in the attempts: the file is damaged", id, len(f.r.strings)))
		return ""
	}
	return f.r.strings[id]
}

func (f *fields) addr() netip.Addr {
	b, err := f.r.bytes(16)
	f.keep(err)
	a, _ := netip.AddrFromSlice(b)
	return a
}

func (f *fields) keep(err error) {
	if f.err == nil {
		f.err = midFrame(err)
	}
}

func midFrame(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
