package probes

import (
	"bytes"
	"cmp"
	"strings"
	"time"
)

// maxReply is the maximum size of an answer, head and body; answers of known backends have less than 500 bytes.
const maxReply = 8 << 10

// identity is the backend as named in its answer. The slices point into the parsed bytes.
type identity struct {
	pod, node, generation []byte
	client                []byte // address of the client as the pod saw it
	terminating           time.Duration
}

// The end of the head and separators, as bytes so that the parser does not allocate.
var (
	crlf    = []byte("\r\n")
	headEnd = []byte("\r\n\r\n")
	colon   = []byte(":")
)

// parseReply parses an HTTP/1.x answer from the bytes so far. It is strict, since a wrong byte is a fault of a proxy:
// status 200, and a body of Content-Length bytes or, without one, up to the end of the stream (ended). done is false
// while the answer is incomplete. The set of faults is bounded. Chunked bodies are a fault: no known backend sends them
// for small answers. With a status other than 0 only the head is parsed, see Lane.Status.
func parseReply(b []byte, ended bool, status int) (backend identity, done bool, fault string) {
	if fault := statusFault(b, cmp.Or(status, 200)); fault != "" {
		return backend, true, fault
	}
	end := bytes.Index(b, headEnd)
	if end < 0 || len(b) < len("HTTP/1.1 200") {
		if len(b) > maxReply {
			return backend, true, "answer too long"
		}
		return backend, false, ""
	}
	head, body := b[:end], b[end+len(headEnd):]
	length, fault := parseHead(head, &backend)
	switch {
	case status != 0:
		return backend.validated()
	case fault != "":
		return backend, true, fault
	case length > maxReply || len(body) > maxReply:
		return backend, true, "answer too long"
	case length < 0 && !ended:
		return backend, false, ""
	case length >= 0 && len(body) < length:
		return backend, false, ""
	case length >= 0 && len(body) > length:
		return backend, true, "bytes after the answer"
	}
	if len(backend.pod) == 0 {
		backend.pod = bytes.TrimSpace(body)
	}
	return backend.validated()
}

// validated returns the identity of a complete answer, with a fault when a name is invalid.
func (backend identity) validated() (identity, bool, string) {
	if !validName(backend.pod) || !validName(backend.node) || !validName(backend.generation) || !validName(backend.client) {
		return backend, true, "identity is not a name"
	}
	return backend, true, ""
}

// answerLength returns the length of the first answer on a connection that stays open, 0 while it is incomplete, and a
// fault as in parseReply. Such an answer must have a Content-Length.
func answerLength(b []byte) (n int, fault string) {
	if fault := statusFault(b, 200); fault != "" {
		return 0, fault
	}
	end := bytes.Index(b, headEnd)
	if end < 0 {
		if len(b) > maxReply {
			return 0, "answer too long"
		}
		return 0, ""
	}
	var backend identity
	length, fault := parseHead(b[:end], &backend)
	n = end + len(headEnd) + length
	switch {
	case fault != "":
		return 0, fault
	case length < 0:
		return 0, "answer without a length"
	case length > maxReply:
		return 0, "answer too long"
	case n > len(b):
		return 0, ""
	}
	return n, ""
}

// statusFault checks the status line as far as it has arrived.
func statusFault(b []byte, want int) string {
	const protocol = "HTTP/1."
	if n := min(len(b), len(protocol)); string(b[:n]) != protocol[:n] {
		return "not HTTP"
	}
	const upToStatus = len("HTTP/1.1 200")
	if len(b) < upToStatus {
		return ""
	}
	if minor := b[7]; (minor != '0' && minor != '1') || b[8] != ' ' {
		return "not HTTP"
	}
	status := b[9:upToStatus]
	n, ok := parseDecimal(status)
	switch {
	case !ok:
		return "not HTTP"
	case n != int64(want):
		return "status " + string(status)
	}
	return ""
}

// parseHead parses the header lines after the status line. The length is -1 without Content-Length.
func parseHead(head []byte, backend *identity) (length int, fault string) {
	length = -1
	_, rest, more := bytes.Cut(head, crlf)
	for more {
		var line []byte
		line, rest, more = bytes.Cut(rest, crlf)
		name, value, found := bytes.Cut(line, colon)
		if !found || len(name) == 0 || bytes.ContainsAny(name, " \t") {
			return 0, "malformed header"
		}
		value = bytes.TrimSpace(value)
		switch {
		case equalFold(name, "Content-Length"):
			n, ok := parseDecimal(value)
			if !ok || (length >= 0 && int64(length) != n) {
				return 0, "malformed length"
			}
			length = int(n)
		case equalFold(name, "Transfer-Encoding"):
			return 0, "chunked answer"
		case equalFold(name, "X-Hitless-Pod"):
			backend.pod = value
		case equalFold(name, "X-Hitless-Node"):
			backend.node = value
		case equalFold(name, "X-Hitless-Generation"):
			backend.generation = value
		case equalFold(name, "X-Hitless-Client"):
			backend.client = value
		case equalFold(name, "X-Hitless-Terminating-Ms"):
			ms, ok := parseDecimal(value)
			if !ok {
				return 0, "malformed terminating time"
			}
			backend.terminating = time.Duration(ms) * time.Millisecond
		}
	}
	return length, ""
}

func equalFold(name []byte, want string) bool {
	return len(name) == len(want) && strings.EqualFold(string(name), want)
}

// parseDecimal parses a decimal number of at most 12 digits (thirty years in milliseconds), without allocating.
func parseDecimal(b []byte) (int64, bool) {
	if len(b) == 0 || len(b) > 12 {
		return 0, false
	}
	var n int64
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + int64(c-'0')
	}
	return n, true
}

// validName reports whether b can be the name of a pod, node or generation (at most 253 bytes, RFC 1123 and some more
// characters), so that garbage in a body never becomes a backend's name in the record. The empty name is valid.
func validName(b []byte) bool {
	if len(b) > 253 {
		return false
	}
	for _, c := range b {
		if c <= ' ' || c > '~' {
			return false
		}
	}
	return true
}

// nameCache keeps one string per name, so that recording an attempt does not allocate. It is cleared when it exceeds
// the size of a real cluster, so that answers with random names cannot fill the memory.
type nameCache map[string]string

func (w nameCache) intern(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	if s, known := w[string(b)]; known { // the compiler avoids the allocation
		return s
	}
	if len(w) >= 4096 {
		clear(w)
	}
	s := string(b)
	w[s] = s
	return s
}
