//go:build unix

package probes

import (
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/hitless/hitless/record"
)

const okHead = "HTTP/1.1 200 OK\r\n"

func TestParseReply(t *testing.T) {
	for _, test := range []struct {
		name, text string
		ended      bool
		done       bool
		fault      string
		pod        string
	}{
		{name: "identity in headers", text: answer("web-1", "node-2"), done: true, pod: "web-1"},
		{name: "pod from the body", text: okHead + "Content-Length: 6\r\n\r\nweb-1\n", done: true, pod: "web-1"},
		{name: "the header wins over the body", text: okHead + "x-hitless-pod:  web-2 \r\nContent-Length: 5\r\n\r\nweb-1", done: true, pod: "web-2"},
		{name: "HTTP/1.0 up to the end", text: "HTTP/1.0 200 OK\r\n\r\nweb-1", ended: true, done: true, pod: "web-1"},
		{name: "no reason phrase", text: "HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", done: true},
		{name: "no header", text: "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", done: true},
		{name: "nothing yet", text: ""},
		{name: "half a status line", text: "HTTP/1.1 20"},
		{name: "half a head", text: okHead + "Content-Le"},
		{name: "half a body", text: okHead + "Content-Length: 5\r\n\r\nweb"},
		{name: "without length, not ended", text: okHead + "\r\nweb-1"},
		{name: "ended within the body", text: okHead + "Content-Length: 5\r\n\r\nweb", ended: true},
		{name: "ended within the head", text: okHead, ended: true},
		{name: "ended at once", text: "", ended: true},
		{name: "not HTTP", text: "SSH-2.0-OpenSSH_9.2\r\n", done: true, fault: "not HTTP"},
		{name: "not HTTP from its first byte", text: "S", done: true, fault: "not HTTP"},
		{name: "HTTP/1.2", text: "HTTP/1.2 200 OK\r\n\r\n", done: true, fault: "not HTTP"},
		{name: "status is no number", text: "HTTP/1.1 2x0 OK\r\n\r\n", done: true, fault: "not HTTP"},
		{name: "no server", text: "HTTP/1.0 503 Service Unavailable\r\n\r\n", done: true, fault: "status 503"},
		{name: "not found", text: "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", done: true, fault: "status 404"},
		{name: "chunked", text: okHead + "Transfer-Encoding: chunked\r\n\r\n", done: true, fault: "chunked answer"},
		{name: "bytes after", text: okHead + "Content-Length: 1\r\n\r\nab", done: true, fault: "bytes after the answer"},
		{name: "two lengths", text: okHead + "Content-Length: 1\r\nContent-Length: 2\r\n\r\na", done: true, fault: "malformed length"},
		{name: "negative length", text: okHead + "Content-Length: -1\r\n\r\n", done: true, fault: "malformed length"},
		{name: "huge length", text: okHead + "Content-Length: 99999999\r\n\r\n", done: true, fault: "answer too long"},
		{name: "endless head", text: okHead + strings.Repeat("X-A: b\r\n", maxReply/8), done: true, fault: "answer too long"},
		{name: "endless body", text: okHead + "\r\n" + strings.Repeat("a", maxReply+1), done: true, fault: "answer too long"},
		{name: "header without colon", text: okHead + "oops\r\n\r\n", ended: true, done: true, fault: "malformed header"},
		{name: "body is not a name", text: okHead + "Content-Length: 5\r\n\r\na b c", done: true, fault: "identity is not a name"},
		{name: "terminating is no number", text: okHead + "X-Hitless-Terminating-Ms: soon\r\n\r\n", ended: true, done: true, fault: "malformed terminating time"},
	} {
		t.Run(test.name, func(t *testing.T) {
			backend, done, fault := parseReply([]byte(test.text), test.ended, 0)
			if done != test.done || fault != test.fault || (fault == "" && done && string(backend.pod) != test.pod) {
				t.Errorf("done=%v fault=%q pod=%q, want done=%v fault=%q pod=%q", done, fault, backend.pod, test.done, test.fault, test.pod)
			}
		})
	}
}

func TestReplyIdentity(t *testing.T) {
	backend, _, _ := parseReply([]byte(okHead+"X-Hitless-Pod: web-1\r\nX-HITLESS-NODE: node-2\r\nX-Hitless-Generation: 5d4\r\n"+
		"X-Hitless-Terminating-Ms: 1500\r\nX-Hitless-Client: 10.0.0.9\r\nContent-Length: 0\r\n\r\n"), false, 0)
	got := fmt.Sprintf("%s %s %s %s %v", backend.pod, backend.node, backend.generation, backend.client, backend.terminating)
	if want := "web-1 node-2 5d4 10.0.0.9 1.5s"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestClientThatThePodSaw(t *testing.T) {
	var probe tcp
	probe.names = nameCache{}
	for _, test := range []struct{ source, seen, want string }{
		{"10.0.0.9:4000", "10.0.0.9", record.ClientUnchanged},
		{"[::ffff:10.0.0.9]:4000", "10.0.0.9", record.ClientUnchanged},
		{"[fd00::9]:4000", "fd00::9", record.ClientUnchanged},
		{"10.0.0.9:4000", "10.0.0.1", "10.0.0.1"},
		{"10.0.0.9:4000", "", ""},
	} {
		f := &flight{Attempt: record.Attempt{Source: netip.MustParseAddrPort(test.source)}}
		probe.identify(f, identity{client: []byte(test.seen)})
		if f.Client != test.want {
			t.Errorf("a pod that sees %q as the client %s: %q, want %q", test.seen, test.source, f.Client, test.want)
		}
	}
}

// No incomplete prefix of an answer is complete or faulty.
func TestReplyInPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		whole := []byte(answer("web-1", "node-1"))
		n := rapid.IntRange(0, len(whole)).Draw(t, "n")
		backend, done, fault := parseReply(whole[:n], false, 0)
		if fault != "" || done != (n == len(whole)) || (done && string(backend.pod) != "web-1") {
			t.Fatalf("%d of %d bytes: done=%v fault=%q pod=%q", n, len(whole), done, fault, backend.pod)
		}
	})
}

func TestGarbageIsNotABackendName(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := []byte(okHead + string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")))
		b = b[:rapid.IntRange(0, len(b)).Draw(t, "n")]
		if backend, done, fault := parseReply(b, true, 0); done && fault == "" && !validName(backend.pod) {
			t.Fatalf("%q was accepted as a pod's name", backend.pod)
		}
	})
}

func TestReplyAllocatesNothing(t *testing.T) {
	b, w := []byte(answer("web-1", "node-1")), nameCache{}
	if n := testing.AllocsPerRun(100, func() {
		backend, _, _ := parseReply(b, false, 0)
		w.intern(backend.pod)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestNameCacheIsBounded(t *testing.T) {
	w := nameCache{}
	for i := range 100_000 {
		w.intern(fmt.Append(nil, i))
	}
	if len(w) > 4096 {
		t.Errorf("%d names are cached", len(w))
	}
}

func TestClassifyDial(t *testing.T) {
	v4 := func(kind, code uint8) icmp { return icmp{origin: originICMP, typ: kind, code: code} }
	v6 := func(kind, code uint8) icmp { return icmp{origin: originICMP6, typ: kind, code: code} }
	for _, test := range []struct {
		errno  syscall.Errno
		queued icmp
		class  record.Class
		detail string
	}{
		{syscall.ECONNREFUSED, icmp{}, record.Refused, ""},
		{syscall.ECONNREFUSED, v4(3, 3), record.Rejected, "icmp 3/3"},
		{0, v4(3, 3), record.Rejected, "icmp 3/3"},
		{syscall.ECONNREFUSED, v6(1, 4), record.Rejected, "icmp6 1/4"},
		{syscall.EHOSTUNREACH, v4(3, 1), record.Unreachable, "icmp 3/1"},
		{syscall.ENETUNREACH, v4(3, 0), record.Unreachable, "icmp 3/0"},
		{syscall.EHOSTUNREACH, v4(3, 13), record.Rejected, "icmp 3/13"},
		{syscall.EHOSTUNREACH, v4(3, 10), record.Rejected, "icmp 3/10"},
		{syscall.ENETUNREACH, v4(3, 9), record.Rejected, "icmp 3/9"},
		{syscall.EHOSTUNREACH, v4(11, 3), record.Unreachable, "icmp 11/3"},
		{syscall.EHOSTUNREACH, v4(11, 0), record.Unreachable, "icmp 11/0"},
		{syscall.EACCES, v6(1, 1), record.Rejected, "icmp6 1/1"},
		{syscall.EACCES, v6(1, 5), record.Rejected, "icmp6 1/5"},
		{syscall.ENETUNREACH, v6(1, 0), record.Unreachable, "icmp6 1/0"},
		{syscall.ENETUNREACH, icmp{}, record.Probe, "ENETUNREACH"},
		{syscall.EHOSTUNREACH, icmp{origin: 1}, record.Probe, "EHOSTUNREACH"},
		{syscall.EADDRNOTAVAIL, icmp{}, record.Probe, "EADDRNOTAVAIL"},
		{syscall.EMFILE, icmp{}, record.Probe, "EMFILE"},
		{syscall.ENOBUFS, icmp{}, record.Probe, "ENOBUFS"},
		{syscall.ETIMEDOUT, icmp{}, record.ConnectTimeout, "ETIMEDOUT"},
		{syscall.ECONNRESET, icmp{}, record.Reset, "ECONNRESET"},
		{syscall.EPIPE, icmp{}, record.Closed, "EPIPE"},
		{syscall.Errno(9999), icmp{}, record.Probe, "unknown errno"},
	} {
		class, detail := classifyDial(test.errno, test.queued)
		if class != test.class || detail != test.detail {
			t.Errorf("%v with %v: %v (%s), want %v (%s)", test.errno, test.queued, class, detail, test.class, test.detail)
		}
	}
}

func TestClassifyAnswer(t *testing.T) {
	second := time.Second
	for _, test := range []struct {
		name    string
		attempt record.Attempt
		lane    Lane
		total   time.Duration
		class   record.Class
		detail  string
	}{
		{"any backend", record.Attempt{Backend: "web-1"}, Lane{}, second, record.OK, ""},
		{"any backend, not even named", record.Attempt{}, Lane{}, second, record.OK, ""},
		{"allowed", record.Attempt{Backend: "web-1"}, Lane{Backends: []string{"api-", "web-"}}, 0, record.OK, ""},
		{"not allowed", record.Attempt{Backend: "other-1"}, Lane{Backends: []string{"web-"}}, 0, record.Misrouted, DetailBackend},
		{"not named", record.Attempt{}, Lane{Backends: []string{"web-"}}, 0, record.WrongAnswer, DetailNoIdentity},
		{"retransmitted", record.Attempt{Retrans: 1, Connect: second}, Lane{}, 0, record.Delayed, ""},
		{"retransmitted before a SYN counts as lost", record.Attempt{Retrans: 1, Connect: 8 * time.Millisecond}, Lane{}, 0, record.OK, DetailRemembered},
		{"retransmitted early, and after the threshold", record.Attempt{Retrans: 1, Connect: 8 * time.Millisecond}, Lane{DelayedAfter: second / 2}, second,
			record.Delayed, DetailSlow},
		{"retransmitted and wrong", record.Attempt{Retrans: 1, Backend: "x"}, Lane{Backends: []string{"web-"}}, 0, record.Misrouted, DetailBackend},
		{"after the threshold", record.Attempt{}, Lane{DelayedAfter: second / 2}, second, record.Delayed, DetailSlow},
		{"at the threshold", record.Attempt{}, Lane{DelayedAfter: second}, second, record.OK, ""},
	} {
		if class, detail := classifyAnswer(&test.attempt, &test.lane, test.total); class != test.class || detail != test.detail {
			t.Errorf("%s: %v (%s), want %v (%s)", test.name, class, detail, test.class, test.detail)
		}
	}
}

// With a known status, every complete head with that status is an answer.
func TestAnswersOfUnknownBackends(t *testing.T) {
	for _, test := range []struct {
		text, fault string
		done        bool
	}{
		{text: "HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n", done: true},
		{text: "HTTP/1.1 404 Not Found\r\nContent-Length: 100000\r\n\r\nsome", done: true},
		{text: "HTTP/1.1 404 Not Found\r\nContent-Le"},
		{text: "HTTP/1.1 200 OK\r\n\r\n", done: true, fault: "status 200"},
		{text: "SSH-2.0", done: true, fault: "not HTTP"},
	} {
		if _, done, fault := parseReply([]byte(test.text), false, 404); done != test.done || fault != test.fault {
			t.Errorf("%q: done %v, fault %q, want %v, %q", test.text, done, fault, test.done, test.fault)
		}
	}
}
