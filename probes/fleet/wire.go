package fleet

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/url"
	"strconv"
	"time"

	"github.com/hitless/hitless/record"
)

// Path is where a worker is asked, and PathAlive where a kubelet may ask whether it lives.
const (
	Path      = "/records"
	PathAlive = "/alive"
)

// The words for what a worker is to do.
const (
	commandWait = "wait"
	commandRun  = "run"
	commandEnd  = "end"
)

// The words for what a worker does.
const (
	stateWaiting = "waiting" // for its first order
	stateRunning = "running"
	stateEnded   = "ended" // it makes no more attempts, and all of them are in its journal
)

// Request is one question to a worker. Asking it again changes nothing.
type Request struct {
	// Incarnation is the process that is meant. Any other one tells who it is, and takes neither order nor acknowledgement.
	Incarnation string
	Number      uint64 // of the question, which the answer repeats
	From        uint64 // the first record that is wanted; all before it are acknowledged
	Command     string // what the worker is to do from now on
}

// Query is the question as the query of a URL.
func (r Request) Query() url.Values {
	return url.Values{"incarnation": {r.Incarnation}, "number": {strconv.FormatUint(r.Number, 10)},
		"from": {strconv.FormatUint(r.From, 10)}, "do": {r.Command}}
}

func parseRequest(q url.Values) (r Request, err error) {
	r.Incarnation, r.Command = q.Get("incarnation"), q.Get("do")
	for key, into := range map[string]*uint64{"number": &r.Number, "from": &r.From} {
		if *into, err = strconv.ParseUint(q.Get(key), 10, 64); err != nil {
			return r, fmt.Errorf("%s=%q is no number", key, q.Get(key))
		}
	}
	if r.Command != commandWait && r.Command != commandRun && r.Command != commandEnd {
		return r, fmt.Errorf("do=%q; %s, %s and %s are known", r.Command, commandWait, commandRun, commandEnd)
	}
	return r, nil
}

// answer is what a worker says. Its times are since its own start.
type answer struct {
	head
	records []record.Attempt // numbered from head.First on, in the order in which their outcomes became known
}

type head struct {
	Incarnation string        `json:"incarnation"`
	Number      uint64        `json:"number"`
	Now         time.Duration `json:"nowNs"`
	State       string        `json:"state"`
	Reached     bool          `json:"reached"` // its target has answered it once
	Begin       time.Duration `json:"beginNs"` // when attempt 0 was intended, once it runs
	First       uint64        `json:"first"`
	Count       int           `json:"count"`
	Total       uint64        `json:"total"`         // records there are; the last word once it has ended
	EndReason   string        `json:"why,omitempty"` // it ended, if it did so by itself
}

const sumLen = 8 // hex digits of the checksum that ends an answer

// encode writes the head as a line, the records as record.AttemptWriter does, and a checksum of both.
func (a answer) encode() ([]byte, error) {
	a.Count = len(a.records)
	line, err := json.Marshal(a.head)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.Write(append(line, '\n'))
	w := record.NewAttemptWriter(&b)
	for _, r := range a.records {
		if err := w.Write(r); err != nil {
			return nil, err
		}
	}
	if err := w.Flush(); err != nil {
		return nil, err
	}
	fmt.Fprintf(&b, "%0*x", sumLen, crc32.ChecksumIEEE(b.Bytes()))
	return b.Bytes(), nil
}

// decode reads an answer; one that is not whole is an error.
func decode(data []byte) (answer, error) {
	var a answer
	body, sum := data[:max(0, len(data)-sumLen)], data[max(0, len(data)-sumLen):]
	line, rest, found := bytes.Cut(body, []byte("\n"))
	if !found || string(sum) != fmt.Sprintf("%0*x", sumLen, crc32.ChecksumIEEE(body)) {
		return a, fmt.Errorf("the answer of %d bytes is not whole: %.80q", len(data), data)
	}
	if err := json.Unmarshal(line, &a.head); err != nil {
		return a, fmt.Errorf("reading the head of an answer: %w", err)
	}
	for r := record.NewAttemptReader(bytes.NewReader(rest)); ; {
		attempt, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return a, fmt.Errorf("reading the records of an answer: %w", err)
		}
		a.records = append(a.records, attempt)
	}
	if len(a.records) != a.Count || a.Incarnation == "" {
		return a, fmt.Errorf("an answer with %d records tells of %d, from the incarnation %q", len(a.records), a.Count, a.Incarnation)
	}
	return a, nil
}
