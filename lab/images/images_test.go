package images

import (
	"crypto/tls"
	"path"
	"slices"
	"testing"
	"time"

	"github.com/hitless/hitless/lab/build"
)

func TestFind(t *testing.T) {
	for reference, want := range map[string]string{
		"agnhost": "agnhost", "registry.k8s.io/e2e-test-images/agnhost:2.66.1": "agnhost", "localhost:5000/agnhost@sha256:0a": "agnhost",
		"registry.k8s.io/pause:3.10.2": "pause", "busybox:latest": "busybox",
		"nginx": "", "agnhost-2": "", "my-agnhost:1": "", "": "",
	} {
		img, known := Find(reference)
		if known != (want != "") || known && img.Name != want {
			t.Errorf("%q is %q, %t; want %q", reference, img.Name, known, want)
		}
	}
}

// Each image has a command or is a shell, and its layers are below Dir. Messages list the names in order.
func TestTable(t *testing.T) {
	if !slices.IsSorted(Names()) {
		t.Errorf("the names are %q", Names())
	}
	for _, img := range table() {
		if len(img.Layers) == 0 || len(img.Entrypoint)+len(img.Cmd) == 0 {
			t.Errorf("%+v", img)
		}
	}
	if len(Targets()) != 3 {
		t.Errorf("the targets are %v", Targets())
	}
	for _, name := range Links() {
		if slices.Contains(Clients(), name) {
			t.Errorf("%s is a program of its own, and a link to busybox", name)
		}
	}
}

// Specs of upstream start these programs of agnhost by their paths.
func TestAgnhostHasUpstreamsPrograms(t *testing.T) {
	img, _ := Find("agnhost")
	for _, program := range []string{"agnhost", "coredns"} {
		built := slices.ContainsFunc(Targets(), func(t build.Target) bool { return t.Name == program })
		if !built || !slices.Contains(img.Layers, path.Join(Dir, program)) {
			t.Errorf("the layers %q have no /%s", img.Layers, program)
		}
	}
}

func TestLocalhost(t *testing.T) {
	cert, key, err := Localhost(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
	if err != nil {
		t.Fatal(err)
	}
	if err := pair.Leaf.VerifyHostname("localhost"); err != nil {
		t.Error(err)
	}
	if err := pair.Leaf.VerifyHostname("example.test"); err == nil {
		t.Error("the certificate is valid for another host")
	}
}
