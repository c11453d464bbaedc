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

// Path is the URL path of requests, and PathAlive that of the liveness probe.
const (
	Path      = "/records"
	PathAlive = "/alive"
)

// The commands to a worker.
const (
	commandWait = "wait"
	commandRun  = "run"
	commandEnd  = "end"
)

// The states of a worker.
const (
	stateWaiting = "waiting" // not started
	stateRunning = "running"
	stateEnded   = "ended" // all attempts have ended and are in the journal
)

// Request is a request to a worker. It is idempotent.
type Request struct {
	// Incarnation is the addressed process. Another process only answers with its own incarnation.
	Incarnation string
	Number      uint64 // of the request; the answer has the same
	From        uint64 // number of the first wanted record; all before it are acknowledged
	Command     string
}

// Query returns the request as the query of a URL.
func (r Request) Query() url.Values {
	return url.Values{"incarnation": {r.Incarnation}, "number": {strconv.FormatUint(r.Number, 10)},
		"from": {strconv.FormatUint(r.From, 10)}, "do": {r.Command}}
}

func parseRequest(q url.Values) (r Request, err error) {
	r.Incarnation, r.Command = q.Get("incarnation"), q.Get("do")
	for key, into := range map[string]*uint64{"number": &r.Number, "from": &r.From} {
		if *into, err = strconv.ParseUint(q.Get(key), 10, 64); err != nil {
			return r, fmt.Errorf("%s=%q is not a whole number of 0 or more", key, q.Get(key))
		}
	}
	if r.Command != commandWait && r.Command != commandRun && r.Command != commandEnd {
		return r, fmt.Errorf("do=%q is unknown; known are %s, %s and %s", r.Command, commandWait, commandRun, commandEnd)
	}
	return r, nil
}

// answer is a worker's answer. Its times are those of the worker's clock, from its start.
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
	Total       uint64        `json:"total"`         // number of records so far; final in state ended
	EndReason   string        `json:"why,omitempty"` // why it ended early
}

const sumLen = 8 // hex digits of the checksum at the end of an answer

// encode returns the head as a line of JSON, the records in the format of record.AttemptWriter, and a checksum of both.
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

// decode reads an answer. An incomplete answer is an error.
func decode(data []byte) (answer, error) {
	var a answer
	body, sum := data[:max(0, len(data)-sumLen)], data[max(0, len(data)-sumLen):]
	line, rest, found := bytes.Cut(body, []byte("\n"))
	if !found || string(sum) != fmt.Sprintf("%0*x", sumLen, crc32.ChecksumIEEE(body)) {
		return a, fmt.Errorf("the answer of %d bytes is incomplete: %.80q", len(data), data)
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
		return a, fmt.Errorf("the answer has %d records, its head has count %d and incarnation %q", len(a.records), a.Count, a.Incarnation)
	}
	return a, nil
}
