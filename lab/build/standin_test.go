package build

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// standIn is a server of releases on loopback, and an HTTP proxy to itself.
type standIn struct {
	*httptest.Server
	files map[string][]byte // by path

	mu       sync.Mutex
	cut      int64         // answers with the artifact end after so many bytes; 0 for none
	noRange  bool          // ranges are ignored
	wrong    bool          // ranges begin elsewhere
	noETag   bool          // answers have no validator
	silent   chan struct{} // when set, an answer stops in the middle until it is closed
	halfway  func()        // called in the middle of an answer
	requests []seenRequest
	serving  sync.WaitGroup // of answers; a client has the last byte before its answer is in requests
}

// seenRequest is what the server has seen.
type seenRequest struct {
	method, path, host string
	first              int64 // byte that the answer begins with
	sent               int64
}

const proxyPath = "/v1.37.1/bin/linux/amd64/kube-proxy"

// content is bytes like those of a program: the same for a seed.
func content256(seed uint64) []byte {
	data, random := make([]byte, 256<<10), rand.New(rand.NewPCG(seed, 0))
	for i := range data {
		data[i] = byte(random.Uint32())
	}
	return data
}

func sum256(data []byte) string { s := sha256.Sum256(data); return hex.EncodeToString(s[:]) }

func sum512(data []byte) string { s := sha512.Sum512(data); return hex.EncodeToString(s[:]) }

// archive is a tar.gz with one program.
func archive(t *testing.T, name string, program []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	zipped := gzip.NewWriter(&b)
	files := tar.NewWriter(zipped)
	for file, data := range map[string][]byte{"README.md": []byte("text"), name: program} {
		if err := files.WriteHeader(&tar.Header{Name: file, Mode: 0o644, Size: int64(len(data)), Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		if _, err := files.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	if err := files.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zipped.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// newStandIn serves kube-proxy v1.37.1 and etcd v3.7.0, and is the mirror of both in the environment.
func newStandIn(t *testing.T) *standIn {
	t.Helper()
	s := &standIn{files: map[string][]byte{}}
	s.put(proxyPath, content256(1))
	packed := archive(t, "etcd-v3.7.0-linux-amd64/etcd", []byte("the program etcd"))
	s.files["/v3.7.0/etcd-v3.7.0-linux-amd64.tar.gz"] = packed
	s.files["/v3.7.0/SHA256SUMS"] = []byte(sum256([]byte("x")) + "  etcd-v3.7.0-darwin-amd64.zip\n" + sum256(packed) + "  etcd-v3.7.0-linux-amd64.tar.gz\n")
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	t.Setenv(kubernetesMirror, s.URL)
	t.Setenv(etcdMirror, s.URL)
	return s
}

// put serves a program with its checksum.
func (s *standIn) put(path string, data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files[path], s.files[path+".sha256"] = data, []byte(sum256(data))
}

// change changes the server between requests.
func (s *standIn) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// of returns the requests of a path, when all answers have ended.
func (s *standIn) of(method, path string) (list []seenRequest) {
	s.serving.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.requests {
		if r.method == method && r.path == path {
			list = append(list, r)
		}
	}
	return list
}

func (s *standIn) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.serving.Add(1)
	defer s.serving.Done()
	s.mu.Lock()
	data, found := s.files[r.URL.Path]
	cut, noRange, wrong, noETag, silent, halfway := s.cut, s.noRange, s.wrong, s.noETag, s.silent, s.halfway
	s.mu.Unlock()
	if !found {
		http.NotFound(w, r)
		return
	}
	if noRange {
		r.Header.Del("Range")
	}
	if wrong && r.Header.Get("Range") != "" {
		r.Header.Set("Range", "bytes=1-")
	}
	if !noETag {
		w.Header().Set("ETag", `"`+sum256(data)+`"`)
	}
	if strings.Contains(r.URL.Path, ".sha") || strings.HasSuffix(r.URL.Path, "SUMS") {
		cut, silent, halfway = 0, nil, nil
	}
	out := &counting{ResponseWriter: w, cut: cut, silent: silent, halfway: halfway, whole: int64(len(data)), gone: r.Context().Done()}
	http.ServeContent(out, r, "", time.Time{}, bytes.NewReader(data))
	var first int64
	fmt.Sscanf(w.Header().Get("Content-Range"), "bytes %d-", &first)
	s.change(func() { s.requests = append(s.requests, seenRequest{r.Method, r.URL.Path, r.Host, first, out.sent}) })
}

// counting counts the bytes of an answer, and can end or stop it early.
type counting struct {
	http.ResponseWriter
	cut, whole, sent int64
	silent           chan struct{}
	halfway          func()
	gone             <-chan struct{}
}

func (c *counting) Write(p []byte) (int, error) {
	if c.cut > 0 && c.sent+int64(len(p)) > c.cut {
		n, _ := c.ResponseWriter.Write(p[:c.cut-c.sent])
		c.sent += int64(n)
		return n, io.ErrShortWrite
	}
	n, err := c.ResponseWriter.Write(p)
	if c.sent += int64(n); c.sent >= c.whole/2 && c.silent != nil {
		c.ResponseWriter.(http.Flusher).Flush()
		if c.halfway != nil {
			c.halfway()
		}
		select {
		case <-c.silent:
		case <-c.gone:
		}
		c.silent = nil
	}
	return n, err
}
