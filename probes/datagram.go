package probes

import (
	"bytes"
	"fmt"
	"strconv"
	"time"
)

// The words that begin a request in a datagram. A backend of the lab answers the first with the attempt's number and its
// identity; agnhost netexec and others answer the second with the number.
const (
	wordAttempt = "attempt"
	wordEcho    = "echo"
)

// datagramHead is a lane's request without the attempt's number: "attempt 1/", and then "42".
func datagramHead(l Lane) []byte {
	word := wordAttempt
	if l.Status != 0 {
		word = wordEcho
	}
	return fmt.Appendf(nil, "%s %d/", word, l.ID)
}

// parseDatagram reads an answer, or a request that came back: an optional word, LANE/NUMBER, and optionally who answers:
// pod, node, generation and the milliseconds since it began to shut down, with "-" for what it does not know.
// The fault is of a bounded vocabulary.
func parseDatagram(b []byte, lane uint16) (seq uint64, who identity, fault string) {
	const unreadable = "not an answer"
	fields := bytes.Fields(b)
	if len(fields) > 0 && (string(fields[0]) == wordAttempt || string(fields[0]) == wordEcho) {
		fields = fields[1:]
	}
	if len(fields) != 1 && len(fields) != 5 {
		return 0, who, unreadable
	}
	id, digits, _ := bytes.Cut(fields[0], []byte("/"))
	laneID, err1 := strconv.ParseUint(string(id), 10, 16)
	seq, err2 := strconv.ParseUint(string(digits), 10, 64)
	if err1 != nil || err2 != nil {
		return 0, who, unreadable
	}
	if uint16(laneID) != lane {
		return 0, who, DetailOther
	}
	if len(fields) == 1 {
		return seq, who, ""
	}
	for i, to := range []*[]byte{&who.pod, &who.node, &who.generation} {
		if word := fields[1+i]; string(word) != "-" {
			*to = word
		}
	}
	ms, ok := number(fields[4])
	if !ok {
		return 0, who, unreadable
	}
	who.terminating = time.Duration(ms) * time.Millisecond
	if _, _, fault := who.named(); fault != "" {
		return 0, who, fault
	}
	return seq, who, ""
}
