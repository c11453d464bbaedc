package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"time"
)

// A block of attempts.bin: blockMark, then little endian the length of its frames (4 bytes), the earliest and latest intended start of
// its attempts in ns (8 each), the CRC-32C of these 20 bytes and the frames (4), then the frames.
const (
	blockMark    = "\xf5blk"
	blockHeadLen = len(blockMark) + 4 + 8 + 8 + 4
	blockBytes   = 64 << 10 // of frames, from which on a block is complete
	maxBlock     = 4 << 20  // of frames; a damaged length must not ask for more memory
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// blockHead is the head of a block. From is larger than To in a block that has only strings.
type blockHead struct {
	length   int
	from, to time.Duration
	sum      uint32
}

func newBlockHead() blockHead { return blockHead{from: math.MaxInt64, to: math.MinInt64} }

// cover extends the run time of the block.
func (h *blockHead) cover(from, to time.Duration) { h.from, h.to = min(h.from, from), max(h.to, to) }

// encode returns the head of a block with these frames.
func (h blockHead) encode(frames []byte) []byte {
	b := append(make([]byte, 0, blockHeadLen), blockMark...)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(frames)))
	b = binary.LittleEndian.AppendUint64(b, uint64(h.from))
	b = binary.LittleEndian.AppendUint64(b, uint64(h.to))
	return binary.LittleEndian.AppendUint32(b, blockSum(b[len(blockMark):], frames))
}

func blockSum(head, frames []byte) uint32 {
	return crc32.Update(crc32.Checksum(head, castagnoli), castagnoli, frames)
}

// decodeHead reads the head of a block, without its checksum being checked.
func decodeHead(b []byte) (h blockHead, err error) {
	if string(b[:len(blockMark)]) != blockMark {
		return h, errors.New("no block begins here")
	}
	b = b[len(blockMark):]
	h = blockHead{int(binary.LittleEndian.Uint32(b)), time.Duration(binary.LittleEndian.Uint64(b[4:])), time.Duration(binary.LittleEndian.Uint64(b[12:])),
		binary.LittleEndian.Uint32(b[20:])}
	if h.length == 0 || h.length > maxBlock {
		return h, fmt.Errorf("a block of %d bytes, 1 to %d are possible", h.length, maxBlock)
	}
	return h, nil
}

// readBlock reads a block. It reuses the memory of buf. The error is io.EOF before a block, io.ErrUnexpectedEOF inside of one.
func readBlock(r io.Reader, buf []byte) (h blockHead, frames []byte, err error) {
	var head [blockHeadLen]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return h, buf, err
	}
	if h, err = decodeHead(head[:]); err != nil {
		return h, buf, err
	}
	if cap(buf) < h.length {
		buf = make([]byte, h.length)
	}
	buf = buf[:h.length]
	if _, err := io.ReadFull(r, buf); err != nil {
		return h, buf, midFrame(err)
	}
	if sum := blockSum(head[len(blockMark):blockHeadLen-4], buf); sum != h.sum {
		return h, buf, fmt.Errorf("its checksum is %08x, its content gives %08x", h.sum, sum)
	}
	return h, buf, nil
}

// part is a stretch of attempts.bin: blocks in a row that are all intact, or bytes that are none.
type part struct {
	begin, end int64 // bytes
	intact     bool
	from, to   time.Duration // run time of an intact part
}

// survey finds the parts of an attempts.bin with so many bytes. Blocks behind damaged bytes are found by their marks.
func survey(f io.ReaderAt, size int64) (parts []part) {
	add := func(p part) {
		if n := len(parts); n > 0 && parts[n-1].intact == p.intact {
			last := &parts[n-1]
			last.end, last.from, last.to = p.end, min(last.from, p.from), max(last.to, p.to)
			return
		}
		parts = append(parts, p)
	}
	at := int64(0)
	magic := make([]byte, len(AttemptsMagic))
	if n, _ := f.ReadAt(magic, 0); string(magic[:n]) == AttemptsMagic {
		at = int64(n)
	}
	for at < size {
		h, _, err := readBlock(io.NewSectionReader(f, at, size-at), nil)
		if err == nil {
			end := at + int64(blockHeadLen+h.length)
			add(part{at, end, true, h.from, h.to})
			at = end
			continue
		}
		next := nextMark(f, at+1, size)
		add(part{at, next, false, math.MaxInt64, math.MinInt64})
		at = next
	}
	return parts
}

// nextMark is where the next mark of a block is, or the size.
func nextMark(f io.ReaderAt, at, size int64) int64 {
	buf := make([]byte, blockBytes)
	for at < size {
		n, err := f.ReadAt(buf, at)
		if i := bytes.Index(buf[:n], []byte(blockMark)); i >= 0 {
			return at + int64(i)
		}
		if err != nil {
			return size
		}
		at += int64(n - len(blockMark) + 1)
	}
	return size
}

// intactText says which run time of the parts is intact.
func intactText(parts []part) string {
	text := ""
	for _, p := range parts {
		if p.intact && p.from <= p.to {
			text += fmt.Sprintf(", %s to %s", atText(p.from), atText(p.to))
		}
	}
	if text == "" {
		return "none of its attempts are intact"
	}
	return "intact are its attempts of the run time " + text[2:]
}

// timesText says which run time the bytes of a range are about: that of the blocks in it, or what lies between those around it.
func timesText(parts []part, f io.ReaderAt, begin, end int64) string {
	h := newBlockHead()
	for i, p := range parts {
		switch {
		case p.end <= begin || p.begin >= end:
		case p.intact:
			coverBlocks(&h, f, p, begin, end)
		default:
			from, to := time.Duration(0), time.Duration(math.MaxInt64)
			if i > 0 {
				from = parts[i-1].to
			}
			if i+1 < len(parts) {
				to = parts[i+1].from
			}
			h.cover(min(from, to), max(from, to))
		}
	}
	switch {
	case h.from > h.to:
		return "before the first attempt"
	case h.to == math.MaxInt64:
		return fmt.Sprintf("run time %s to the end", atText(max(0, h.from)))
	}
	return fmt.Sprintf("run time %s to %s", atText(h.from), atText(h.to))
}

// coverBlocks covers the run time of those blocks of an intact part that have bytes of a range.
func coverBlocks(h *blockHead, f io.ReaderAt, p part, begin, end int64) {
	for at := p.begin; at < min(p.end, end); {
		var head [blockHeadLen]byte
		if _, err := f.ReadAt(head[:], at); err != nil {
			return
		}
		b, err := decodeHead(head[:])
		if err != nil {
			return
		}
		next := at + int64(blockHeadLen+b.length)
		if next > begin && b.from <= b.to {
			h.cover(b.from, b.to)
		}
		at = next
	}
}

// atText is a time of the run in seconds, as reports have it.
func atText(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
