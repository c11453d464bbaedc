package site

import (
	"testing"

	"github.com/hitless/hitless/lab/build"
	"github.com/hitless/hitless/lab/subject"
)

func parsed(t *testing.T, text string) subject.Spec {
	t.Helper()
	s, err := subject.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Each proxy names the programs to build, and each program has its path in the guest.
func TestProgramsOfProxies(t *testing.T) {
	proxies := []subject.Spec{parsed(t, "cilium@1.20.2"), parsed(t, "kube-proxy@v1.37.1/ipvs"), subject.Bundled}
	want := map[build.Target]string{
		{Name: "cilium-agent", Version: "v1.20.2"}:   "/opt/subject/cilium-agent",
		{Name: "cilium-cni", Version: "v1.20.2"}:     "/opt/subject/cilium-cni",
		{Name: "kube-proxy", Version: "v1.37.1"}:     "/usr/bin/kube-proxy-v1.37.1",
		{Name: "kube-apiserver", Version: "v1.37.1"}: "/usr/bin/kube-apiserver",
	}
	targets := map[build.Target]bool{{Name: "kube-apiserver", Version: "v1.37.1"}: true}
	for _, p := range proxies {
		for _, target := range proxyTargets(p) {
			targets[target] = true
		}
	}
	if len(targets) != len(want) {
		t.Errorf("%v", targets)
	}
	for target := range targets {
		if got := guestPath(target, proxies); got != want[target] {
			t.Errorf("%s is %s in the guest, want %s", target, got, want[target])
		}
	}
	if got := mainTarget(proxies[0]); got.Name != "cilium-agent" || mainTarget(subject.Bundled) != (build.Target{}) {
		t.Errorf("%v starts, %v", got, mainTarget(subject.Bundled))
	}
}
