package site

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/hitless/hitless/internal/guest"
	"github.com/hitless/hitless/internal/progress"
	"github.com/hitless/hitless/lab/build"
	"github.com/hitless/hitless/lab/subject"
	"github.com/hitless/hitless/lab/vm"
)

// upstream serves a control plane whose programs have the text, with checksums, and is the mirror of upstream's releases.
func upstream(t *testing.T, text string) {
	t.Helper()
	var packed bytes.Buffer
	zipped := gzip.NewWriter(&packed)
	files := tar.NewWriter(zipped)
	if err := files.WriteHeader(&tar.Header{Name: "etcd-v3.7.0-linux-amd64/etcd", Mode: 0o755, Size: int64(len(text)), Typeflag: tar.TypeReg}); err != nil {
		t.Fatal(err)
	}
	for _, write := range []func() error{func() error { _, err := files.Write([]byte(text)); return err }, files.Close, zipped.Close} {
		if err := write(); err != nil {
			t.Fatal(err)
		}
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data := []byte(text)
		if strings.HasPrefix(r.URL.Path, "/v3") {
			data = packed.Bytes()
		}
		switch name := path.Base(r.URL.Path); {
		case name == "SHA256SUMS":
			fmt.Fprintf(w, "%x  etcd-v3.7.0-linux-amd64.tar.gz\n", sha256.Sum256(data))
		case path.Ext(name) == ".sha256":
			fmt.Fprintf(w, "%x", sha256.Sum256(data))
		default:
			w.Header().Set("Content-Length", fmt.Sprint(len(data)))
			_, _ = w.Write(data)
		}
	}))
	t.Cleanup(s.Close)
	t.Setenv("HITLESS_KUBERNETES_RELEASES", s.URL)
	t.Setenv("HITLESS_ETCD_RELEASES", s.URL)
}

// The guest has the released programs, whose bytes are inputs. host.json tells where they come from, and events how far downloads are.
func TestGuestHasReleasedPrograms(t *testing.T) {
	spec, err := subject.Parse("bundled")
	if err != nil {
		t.Fatal(err)
	}
	digest := func(text string) string {
		upstream(t, text)
		var events []progress.Event
		l := &lab{Call: Call{Progress: func(e progress.Event) { events = append(events, e) }}, LabOptions: LabOptions{Cache: t.TempDir(), Programs: build.Released},
			plan: guest.Plan{Scenario: "quiet", ControlPlane: "kube"}, spec: spec}
		img := vm.NewImage()
		if err := l.addPrograms(t.Context(), img); err != nil {
			t.Fatal(err)
		}
		for i, target := range build.ControlPlane {
			if p := l.programs[i]; p.Program != target.String() || p.Source != "released" || p.Sha256 != fmt.Sprintf("%x", sha256.Sum256([]byte(text))) {
				t.Errorf("host.json has %+v of %s", p, target)
			}
			if !slices.ContainsFunc(events, func(e progress.Event) bool {
				return e.Kind == progress.Download && e.Bytes > 0 && e.Bytes == e.Total && strings.HasPrefix(e.Text, target.String())
			}) {
				t.Errorf("no event tells that %s is here: %+v", target, events)
			}
		}
		packed, err := img.Pack(t.Context(), t.TempDir(), func(string) {})
		if err != nil {
			t.Fatal(err)
		}
		return packed.Sha256
	}
	if one, same, other := digest("one"), digest("one"), digest("two"); one != same || one == other {
		t.Errorf("the same programs give %s and %s, others %s", one, same, other)
	}
}
