//go:build linux

package backend

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const probeRequest = "GET /hostname HTTP/1.1\r\nHost: web\r\nX-Hitless-Attempt: 1/7\r\n\r\n"

// exchange sends the parts one by one, each after the server had the time to read the one before, and returns the answers.
func exchange(t *testing.T, r *testServer, answers int, parts ...string) []*http.Response {
	t.Helper()
	conn := dialWeb(t, r)
	for _, part := range parts {
		if _, err := io.WriteString(conn, part); err != nil {
			t.Fatal(err)
		}
	}
	reader := bufio.NewReader(conn)
	var all []*http.Response
	for range answers {
		all = append(all, readAnswer(t, reader))
	}
	return all
}

func dialWeb(t *testing.T, r *testServer) *net.TCPConn {
	t.Helper()
	conn, err := net.Dial("tcp", r.web)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return conn.(*net.TCPConn)
}

func readAnswer(t *testing.T, reader *bufio.Reader) *http.Response {
	t.Helper()
	answer, err := http.ReadResponse(reader, nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body = io.NopCloser(strings.NewReader(string(body)))
	return answer
}

// The answer to a probe is that of net/http, which answers the same request with one header field more.
func TestProbesGetTheAnswerOfNetHTTP(t *testing.T) {
	for _, terminating := range []bool{false, true} {
		t.Run(fmt.Sprint("terminating ", terminating), func(t *testing.T) {
			r := run(t, Options{UDPPort: Off, TCPPort: Off, DelayShutdown: time.Minute})
			if terminating {
				r.terminate <- syscall.SIGTERM
				for h := (http.Header{}); h.Get(HeaderTerminating) == ""; { // until the signal was taken
					_, _, h = r.get(t, "/hostname")
				}
			}
			quick := exchange(t, r, 1, probeRequest)[0]
			slow := exchange(t, r, 1, strings.Replace(probeRequest, "\r\n\r\n", "\r\nX-Other: 1\r\n\r\n", 1))[0]
			for _, answer := range []*http.Response{quick, slow} {
				if ms := answer.Header.Get(HeaderTerminating); (ms != "") != terminating {
					t.Errorf("%s: %q", HeaderTerminating, ms)
				}
				answer.Header.Del(HeaderTerminating) // a time
				if _, err := http.ParseTime(answer.Header.Get("Date")); err != nil {
					t.Error(err)
				}
				answer.Header.Del("Date")
			}
			if diff := cmp.Diff(describe(t, slow), describe(t, quick)); diff != "" {
				t.Errorf("answers (-net/http +loop):\n%s", diff)
			}
		})
	}
}

func describe(t *testing.T, r *http.Response) string {
	t.Helper()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(r.Proto, r.Status, r.ContentLength, r.Header, string(body))
}

// Requests may come in pieces, several at once, and mixed with others; each gets its answer, in order.
func TestRequestsInAnyPieces(t *testing.T) {
	r := run(t, Options{UDPPort: Off, TCPPort: Off})
	echo := "GET /echo?msg=hello HTTP/1.1\r\nHost: web\r\n\r\n"
	tests := map[string]struct {
		parts []string
		want  []string
	}{
		"whole":               {[]string{probeRequest}, []string{"web-1"}},
		"byte by byte":        {strings.Split(probeRequest, ""), []string{"web-1"}},
		"two at once":         {[]string{probeRequest + probeRequest}, []string{"web-1", "web-1"}},
		"one and a half":      {[]string{probeRequest + probeRequest[:40], probeRequest[40:]}, []string{"web-1", "web-1"}},
		"another":             {[]string{echo}, []string{"hello"}},
		"another, in pieces":  {strings.Split(echo, ""), []string{"hello"}},
		"a probe and another": {[]string{probeRequest + echo}, []string{"web-1", "hello"}},
		"another and a probe": {[]string{echo, probeRequest}, []string{"hello", "web-1"}},
		"a long head":         {[]string{strings.Replace(probeRequest, "web", strings.Repeat("w", 4096), 1)}, []string{"web-1"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			for i, answer := range exchange(t, r, len(tt.want), tt.parts...) {
				if body, err := io.ReadAll(answer.Body); err != nil || string(body) != tt.want[i] {
					t.Errorf("answer %d: %q, %v, want %q", i, body, err, tt.want[i])
				}
			}
		})
	}
}

// The server closes when the client does, by FIN and by RST, and answers what came before a FIN.
func TestEndOfConnections(t *testing.T) {
	r := run(t, Options{UDPPort: Off, TCPPort: Off})
	conn := dialWeb(t, r)
	if _, err := io.WriteString(conn, probeRequest); err != nil {
		t.Fatal(err)
	}
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	reader := bufio.NewReader(conn)
	readAnswer(t, reader)
	if _, err := reader.ReadByte(); err != io.EOF {
		t.Errorf("after both answers and FIN: %v, want EOF", err)
	}
	reset := dialWeb(t, r)
	if err := reset.SetLinger(0); err != nil {
		t.Fatal(err)
	}
	reset.Close()
	if status, _, _ := r.get(t, "/hostname"); status != 200 {
		t.Errorf("status %d after a connection that was reset", status)
	}
}

// A client that does not read its answers gets all of them once it does.
func TestSlowReaderGetsAllAnswers(t *testing.T) {
	r := run(t, Options{UDPPort: Off, TCPPort: Off})
	conn := dialWeb(t, r)
	const requests = 40_000 // some 10 MB of answers, more than the buffers of both sockets
	sent := make(chan error, 1)
	go func() {
		_, err := io.WriteString(conn, strings.Repeat(probeRequest, requests))
		sent <- err
	}()
	reader := bufio.NewReader(conn)
	for i := range requests {
		if answer := readAnswer(t, reader); answer.StatusCode != 200 {
			t.Fatalf("answer %d: status %d", i, answer.StatusCode)
		}
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}
