package vm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"sync"
	"time"
)

// The region is memory that host and guest share: an ivshmem-plain device in the guest, a file on the host. Its first
// part holds the plan, the rest the history:
//
//	0      magic "hitless region 2"
//	16     length of the plan (uint32), then its CRC-32C (uint32)
//	24     stop time for inspection, in nanoseconds of the run's time (int64). It is not part of the plan and always
//	       present: the guest behaves the same with every value until that time
//	32     the plan
//	4 MiB  frames: length, number, kind, CRC-32C of kind and payload (four uint32, little endian), payload, padding to 8
//
// Frames are numbered consecutively from 1. The last one is a trailer; without it the run ended early. An all-zero
// frame header marks the end.
const (
	regionMagic  = "hitless region 2"
	stopOffset   = 24
	planOffset   = 32
	framesOffset = 4 << 20
	frameHeader  = 16
	// RegionSize is the size of the region in bytes. A history that does not fit makes the run invalid.
	RegionSize = 256 << 20
	// PlanSize is the maximum size of a plan in bytes: twice the size of a recording of 10,000 Services with 40,000
	// pods.
	PlanSize = framesOffset - planOffset
)

// FrameKind is the type of a frame's payload.
type FrameKind uint32

// The kinds of frame.
const (
	FrameEvent    FrameKind = iota + 1 // one line of events.ndjson
	FrameAttempts                      // a piece of attempts.bin
	FrameFile                          // a file for the run's directory; see WriteFile
	FrameTrailer                       // the end; the payload is the error message, empty on success
	FrameTimeline                      // a piece of the run's timeline
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ErrRegionFull reports that a frame does not fit into the region.
var ErrRegionFull = errors.New("the history is larger than the region between guest and host")

// PutPlan writes the plan into a fresh region.
func PutPlan(region []byte, plan []byte) error {
	if len(plan) > PlanSize {
		return fmt.Errorf("the plan has %d bytes, more than the limit of %d", len(plan), PlanSize)
	}
	copy(region, regionMagic)
	binary.LittleEndian.PutUint32(region[16:], uint32(len(plan)))
	binary.LittleEndian.PutUint32(region[20:], crc32.Checksum(plan, castagnoli))
	copy(region[planOffset:], plan)
	PutStop(region, never)
	return nil
}

// never is later than the end of any run.
const never = time.Duration(math.MaxInt64)

// PutStop sets the run's time at which the guest stops for inspection. It must follow PutPlan.
func PutStop(region []byte, at time.Duration) {
	binary.LittleEndian.PutUint64(region[stopOffset:], uint64(at))
}

// GetStop returns the run's time at which the guest stops for inspection; later than the end of any run if it does
// not stop.
func GetStop(region []byte) time.Duration {
	return time.Duration(binary.LittleEndian.Uint64(region[stopOffset:]))
}

// GetPlan returns a copy of the plan. A wrong magic, size or checksum is an error.
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

// WriteFile writes a file for the run's directory: its name, NUL, its content.
func (w *FrameWriter) WriteFile(name string, content []byte) error {
	return w.Write(FrameFile, append([]byte(name+"\x00"), content...))
}

// ParseFile reads the payload of a FrameFile.
func ParseFile(payload []byte) (name string, content []byte, err error) {
	before, content, found := bytes.Cut(payload, []byte{0})
	if !found {
		return "", nil, errors.New("the guest sent a file without a name")
	}
	return string(before), content, nil
}

// NewFrameWriter starts at the first frame of the region.
func NewFrameWriter(region []byte) *FrameWriter {
	return &FrameWriter{region: region, at: framesOffset}
}

// Write appends a frame. ErrRegionFull leaves the region unchanged. The space for a trailer is always reserved.
func (w *FrameWriter) Write(kind FrameKind, payload []byte) error {
	const trailerSpace = 4096
	w.mu.Lock()
	defer w.mu.Unlock()
	reserve := trailerSpace
	if kind == FrameTrailer {
		reserve, payload = 0, payload[:min(len(payload), trailerSpace-2*frameHeader)]
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
	binary.LittleEndian.PutUint32(head[0:], uint32(len(payload))+1) // last, so that a partly written frame is not read
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

// Next returns the next frame, io.EOF after the last one. The last frame is a trailer only if the guest ended
// normally. The payload is valid as long as the region is mapped.
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
		return 0, nil, fmt.Errorf("found frame %d, expected frame %d: the region is damaged", number, r.number)
	}
	if frameSum(kind, payload) != binary.LittleEndian.Uint32(head[12:]) {
		return 0, nil, fmt.Errorf("frame %d has a wrong checksum: the region is damaged", number)
	}
	r.at += (frameHeader + int(n) + 7) &^ 7
	return kind, payload, nil
}
