package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
)

// hitless build prints the file of a released program. A release that does not exist is a wrong call.
func TestBuildReleased(t *testing.T) {
	const program = "the released program"
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1.37.1/bin/linux/amd64/kube-proxy":
			fmt.Fprint(w, program)
		case "/v1.37.1/bin/linux/amd64/kube-proxy.sha256":
			fmt.Fprintf(w, "%x", sha256.Sum256([]byte(program)))
		default:
			http.NotFound(w, r)
		}
	}))
	defer s.Close()
	t.Setenv("HITLESS_KUBERNETES_RELEASES", s.URL)
	t.Setenv("HITLESS_CACHE", t.TempDir())
	build := func(name string) (int, string, string) {
		var out, errs bytes.Buffer
		code := execute([]string{"build", name, "--programs", "released"}, &out, &errs)
		return code, out.String(), errs.String()
	}
	code, out, errs := build("kube-proxy@v1.37.1")
	first, _, _ := strings.Cut(out, "\n")
	name, file, _ := strings.Cut(first, "\t")
	if text, err := os.ReadFile(file); code != exitPass || name != "kube-proxy@v1.37.1" || err != nil || string(text) != program {
		t.Errorf("%d, %q, %v, %s", code, out, err, errs)
	}
	if code, out, errs := build("kube-proxy@v1.37.99"); code != exitUsage || out != "" || !strings.Contains(errs, s.URL+"/v1.37.99/bin/linux/amd64/kube-proxy") {
		t.Errorf("%d, %q, %s", code, out, errs)
	}
}
