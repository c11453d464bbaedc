package probes

import (
	"bytes"
	"cmp"
	"strings"
	"time"
)

// maxReply bounds an answer, head and body; the answers of known backends have less than 500 bytes.
const maxReply = 8 << 10

// identity is who answered, in its own words. The slices point into the parsed bytes.
type identity struct {
	pod, node, generation []byte
	terminating           time.Duration
}

// The head's end and the separators, as bytes so that the parser allocates nothing.
var (
	crlf    = []byte("\r\n")
	headEnd = []byte("\r\n\r\n")
	colon   = []byte(":")
)

// parseReply reads an HTTP/1.x answer from what has arrived so far. It is strict, since a byte that is wrong here is a
// proxy's doing: status 200, and a body of Content-Length bytes or, without one, up to the end of the stream (ended).
// It returns done=false while more must come, and a fault, from a bounded vocabulary, for an answer that is wrong.
// Chunked bodies are a fault: none of the backends that probes are meant for sends them for so small an answer.
// With a status other than 0 the head is all that is looked at, see Lane.Status.
func parseReply(b []byte, ended bool, status int) (who identity, done bool, fault string) {
	if fault := statusFault(b, cmp.Or(status, 200)); fault != "" {
		return who, true, fault
	}
	end := bytes.Index(b, headEnd)
	if end < 0 || len(b) < len("HTTP/1.1 200") {
		if len(b) > maxReply {
			return who, true, "answer too long"
		}
		return who, false, ""
	}
	head, body := b[:end], b[end+len(headEnd):]
	length, fault := parseHead(head, &who)
	switch {
	case status != 0:
		return who.validated()
	case fault != "":
		return who, true, fault
	case length > maxReply || len(body) > maxReply:
		return who, true, "answer too long"
	case length < 0 && !ended:
		return who, false, ""
	case length >= 0 && len(body) < length:
		return who, false, ""
	case length >= 0 && len(body) > length:
		return who, true, "bytes after the answer"
	}
	if len(who.pod) == 0 {
		who.pod = bytes.TrimSpace(body)
	}
	return who.validated()
}

// named ends an answer whose identity must be one.
func (who identity) validated() (identity, bool, string) {
	if !validName(who.pod) || !validName(who.node) || !validName(who.generation) {
		return who, true, "identity is not a name"
	}
	return who, true, ""
}

// answerLength returns how long the first answer is of those that stand one after the other on a connection that stays
// open, 0 while it is not complete, and a fault as parseReply does. Such an answer must have a Content-Length.
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
	var who identity
	length, fault := parseHead(b[:end], &who)
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

// statusFault checks the status line as far as it has arrived; the words for a wrong status are bounded by statusWords.
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

// parseHead reads the header lines after the status line. The length is -1 when the head names none.
func parseHead(head []byte, who *identity) (length int, fault string) {
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
			who.pod = value
		case equalFold(name, "X-Hitless-Node"):
			who.node = value
		case equalFold(name, "X-Hitless-Generation"):
			who.generation = value
		case equalFold(name, "X-Hitless-Terminating-Ms"):
			ms, ok := parseDecimal(value)
			if !ok {
				return 0, "malformed terminating time"
			}
			who.terminating = time.Duration(ms) * time.Millisecond
		}
	}
	return length, ""
}

func equalFold(name []byte, want string) bool {
	return len(name) == len(want) && strings.EqualFold(string(name), want)
}

// number reads a decimal number of at most 12 digits (thirty years in milliseconds), without allocating.
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

// wordLike holds for names of pods, nodes and generations (at most 253 bytes, RFC 1123 and a little slack), so that
// garbage in a body never becomes a backend's name in the record. The empty word passes.
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

// words keeps one string per name that was seen, so that recording an attempt allocates nothing. It is emptied when it
// grows beyond what a real cluster shows, so that a target that answers with ever new names cannot fill the memory.
type nameCache map[string]string

func (w nameCache) intern(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	if s, known := w[string(b)]; known { // no allocation: the compiler knows this form
		return s
	}
	if len(w) >= 4096 {
		clear(w)
	}
	s := string(b)
	w[s] = s
	return s
}
