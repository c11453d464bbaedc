package backend

import (
	"bytes"
	"net/netip"
	"strconv"
	"time"
)

// The request of a probe is this line, and the header fields Host and X-Hitless-Attempt in this order (see probes).
var (
	quickLine   = []byte("GET /hostname HTTP/1.1\r\nHost: ")
	quickNumber = []byte("\r\nX-Hitless-Attempt: ")
	headEnd     = []byte("\r\n\r\n")
)

// requestSize returns the size of the first request of a probe in b, 0 while it is incomplete. quick is false if it is another request.
func requestSize(b []byte) (size int, quick bool) {
	if n := min(len(b), len(quickLine)); !bytes.Equal(b[:n], quickLine[:n]) {
		return 0, false
	}
	end := bytes.Index(b, headEnd)
	if end < 0 {
		return 0, true
	}
	fields := b[len(quickLine):end]
	host, number, found := bytes.Cut(fields, quickNumber)
	if !found || len(host) == 0 || bytes.ContainsAny(host, "\r\n") || bytes.ContainsAny(number, "\r\n") {
		return 0, false
	}
	return end + len(headEnd), true
}

// quick appends the answer to the request of a probe: the one of net/http. It is nil if the options want another one.
func (s *server) quick(dst []byte, client netip.Addr) []byte {
	if s.options.HTTPOverride != "" {
		return nil
	}
	dst = append(dst, "HTTP/1.1 200 OK\r\n"...)
	dst = client.AppendTo(appendName(dst, HeaderClient))
	dst = append(appendName(append(dst, crlf...), HeaderGeneration), s.id.Generation...)
	dst = append(appendName(append(dst, crlf...), HeaderNode), s.id.Node...)
	dst = append(appendName(append(dst, crlf...), HeaderPod), s.id.Pod...)
	if ms := s.terminating(); ms > 0 {
		dst = strconv.AppendInt(appendName(append(dst, crlf...), HeaderTerminating), ms, 10)
	}
	dst = time.Now().UTC().AppendFormat(append(dst, "\r\nDate: "...), "Mon, 02 Jan 2006 15:04:05 GMT")
	dst = strconv.AppendInt(append(dst, "\r\nContent-Length: "...), int64(len(s.id.Pod)), 10)
	dst = append(dst, "\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n"...)
	return append(dst, s.id.Pod...)
}

const crlf = "\r\n"

func appendName(dst []byte, name string) []byte { return append(append(dst, name...), ": "...) }
