package vm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"sync"
	"time"
)

// The region is the memory that host and guest share (an ivshmem-plain device in the guest, a file on the host). The
// plan goes in through its first part, the history comes out through the rest:
//
//	0      magic "hitless region 2"
//	16     length of the plan (uint32), then its CRC-32C (uint32)
//	24     when to stop and look: nanoseconds of the run's time (int64). It is no part of the plan, and always there: the guest
//	       does the same with every value of it until that time has come
//	32     the plan
//	4 MiB  frames: length, number, kind, CRC-32C of kind and payload (four uint32, little endian), payload, padding to 8
//
// Frames are numbered from 1 without gaps. The last one is a trailer that says how many there were; without it the run
// ended early. An all-zero frame header is the end of what was written.
const (
	regionMagic  = "hitless region 2"
	stopOffset   = 24
	planOffset   = 32
	framesOffset = 4 << 20
	frameHeader  = 16
	// RegionSize is the size of the region in bytes. A history that does not fit makes the run invalid.
	RegionSize = 256 << 20
	// PlanSize is how large a plan may be, in bytes: what a recording of 10,000 Services with 40,000 pods takes, twice.
	PlanSize = framesOffset - planOffset
)

// FrameKind says what a frame carries.
type FrameKind uint32

// The kinds of frame.
const (
	FrameEvent    FrameKind = iota + 1 // one line of events.ndjson
	FrameAttempts                      // a piece of attempts.bin
	FrameFile                          // a file for the run's folder: name, NUL, content
	FrameTrailer                       // the end; the payload is the exit message, empty when all went well
	FrameTimeline                      // a piece of the run's timeline
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ErrRegionFull is returned when a frame does not fit into the region any more.
var ErrRegionFull = errors.New("the history is larger than the region between guest and host")

// PutPlan writes the plan into a fresh region.
func PutPlan(region []byte, plan []byte) error {
	if len(plan) > PlanSize {
		return fmt.Errorf("a plan of %d bytes does not fit; at most %d do", len(plan), PlanSize)
	}
	copy(region, regionMagic)
	binary.LittleEndian.PutUint32(region[16:], uint32(len(plan)))
	binary.LittleEndian.PutUint32(region[20:], crc32.Checksum(plan, castagnoli))
	copy(region[planOffset:], plan)
	PutStop(region, never)
	return nil
}

// never is a time that no run comes to.
const never = time.Duration(math.MaxInt64)

// PutStop has the guest stop and look at a time of the run, after PutPlan.
func PutStop(region []byte, at time.Duration) {
	binary.LittleEndian.PutUint64(region[stopOffset:], uint64(at))
}

// GetStop is when the guest is to stop and look: later than any run lasts when it is not to.
func GetStop(region []byte) time.Duration {
	return time.Duration(binary.LittleEndian.Uint64(region[stopOffset:]))
}

// GetPlan reads the plan out of a region.
func GetPlan(region []byte) ([]byte, error) {
	if len(region) < framesOffset || string(region[:16]) != regionMagic {
		return nil, errors.New("the region has no plan of a version that this program reads")
	}
	n := binary.LittleEndian.Uint32(region[16:])
	if int(n) > PlanSize {
		return nil, fmt.Errorf("the region claims a plan of %d bytes: it is damaged", n)
	}
	plan := append([]byte(nil), region[planOffset:planOffset+int(n)]...)
	if crc32.Checksum(plan, castagnoli) != binary.LittleEndian.Uint32(region[20:]) {
		return nil, errors.New("the plan's checksum is wrong: the region is damaged")
	}
	return plan, nil
}

// FrameWriter writes frames into a region. It is safe for concurrent use.
type FrameWriter struct {
	mu     sync.Mutex
	region []byte
	at     int
	number uint32
}

// NewFrameWriter starts at the first frame of the region.
func NewFrameWriter(region []byte) *FrameWriter {
	return &FrameWriter{region: region, at: framesOffset}
}

// Write appends a frame. ErrRegionFull leaves the region as it was; room for the trailer is always kept.
func (w *FrameWriter) Write(kind FrameKind, payload []byte) error {
	const trailerRoom = 4096
	w.mu.Lock()
	defer w.mu.Unlock()
	reserve := trailerRoom
	if kind == FrameTrailer {
		reserve, payload = 0, payload[:min(len(payload), trailerRoom-2*frameHeader)]
	}
	if w.at+frameHeader+len(payload)+8+frameHeader+reserve > len(w.region) {
		return fmt.Errorf("%w (%d of %d bytes are used)", ErrRegionFull, w.at, len(w.region))
	}
	w.number++
	head := w.region[w.at:]
	copy(head[frameHeader:], payload)
	binary.LittleEndian.PutUint32(head[4:], w.number)
	binary.LittleEndian.PutUint32(head[8:], uint32(kind))
	binary.LittleEndian.PutUint32(head[12:], frameSum(kind, payload))
	binary.LittleEndian.PutUint32(head[0:], uint32(len(payload))+1) // last, so that a half-written frame is no frame
	w.at += (frameHeader + len(payload) + 7) &^ 7
	return nil
}

func frameSum(kind FrameKind, payload []byte) uint32 {
	return crc32.Update(crc32.Checksum([]byte{byte(kind)}, castagnoli), castagnoli, payload)
}

// FrameReader reads frames in order.
type FrameReader struct {
	region []byte
	at     int
	number uint32
}

// NewFrameReader starts at the first frame of the region.
func NewFrameReader(region []byte) *FrameReader {
	return &FrameReader{region: region, at: framesOffset}
}

// Next returns the next frame; io.EOF after the last one that was written (which is a trailer only if the guest came to
// its end). The payload is valid as long as the region.
func (r *FrameReader) Next() (FrameKind, []byte, error) {
	if r.at+frameHeader > len(r.region) {
		return 0, nil, io.EOF
	}
	head := r.region[r.at:]
	n := binary.LittleEndian.Uint32(head)
	if n == 0 {
		return 0, nil, io.EOF
	}
	n--
	r.number++
	if frameHeader+int(n) > len(head) {
		return 0, nil, fmt.Errorf("frame %d claims %d bytes, %d are left: the region is damaged", r.number, n, len(head)-frameHeader)
	}
	number, kind := binary.LittleEndian.Uint32(head[4:]), FrameKind(binary.LittleEndian.Uint32(head[8:]))
	payload := head[frameHeader : frameHeader+int(n)]
	if number != r.number {
		return 0, nil, fmt.Errorf("frame %d stands where frame %d should: the region is damaged", number, r.number)
	}
	if frameSum(kind, payload) != binary.LittleEndian.Uint32(head[12:]) {
		return 0, nil, fmt.Errorf("frame %d has a wrong checksum: the region is damaged", number)
	}
	r.at += (frameHeader + int(n) + 7) &^ 7
	return kind, payload, nil
}
