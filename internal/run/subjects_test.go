package run

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/hitless/hitless/lab/build"
)

// without is a machine that has everything but the named programs, and the given versions of kube-proxy.
func without(programs []string, versions ...string) machine {
	return machine{has: func(p string) bool { return !slices.Contains(programs, p) },
		built: func() (all []build.Target, err error) {
			for _, v := range versions {
				all = append(all, build.Target{Name: "kube-proxy", Version: v})
			}
			return all, nil
		}}
}

// What is missing is named for the subjects that need it, with the package that brings it, and for no other.
func TestSubjectsSayWhatIsMissing(t *testing.T) {
	const bundled, proxy, cilium, described = "bundled", "kube-proxy", "cilium", "exec:FILE"
	for name, c := range map[string]struct {
		machine machine
		not     []string
		say     string
	}{
		"nothing":       {without(nil), nil, ""},
		"qemu":          {without([]string{"qemu-system-x86_64"}), []string{bundled, proxy, cilium, described}, "apt-get install qemu-system-x86"},
		"guest program": {machine{has: without(nil).has, built: without(nil).built, guest: errors.New("put it beside")}, []string{bundled, proxy, cilium, described}, "put it beside"},
		"go":            {without([]string{"go"}), []string{proxy, cilium}, "Go 1.26"},
		"go, but built": {without([]string{"go"}, "v1.26.0"), []string{cilium}, "Go 1.26"},
	} {
		rows, _, err := c.machine.subjects()
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rows {
			kind, _, _ := strings.Cut(r.Subject, "@")
			if kind == "cluster" {
				if r.OK {
					t.Errorf("%s: claims that it can test a live cluster", name)
				}
				continue
			}
			if bad := slices.Contains(c.not, kind); r.OK == bad || (bad && !strings.Contains(r.Text, c.say)) {
				t.Errorf("%s missing: %+v, want possible=%t with %q", name, r, !bad, c.say)
			}
		}
	}
}

// Without QEMU there is still the host's kernel, but not for IPVS.
func TestSubjectsNameTheHostsKernel(t *testing.T) {
	rows, _, err := without([]string{"qemu-system-x86_64"}).subjects()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		mode := r.Subject[strings.LastIndex(r.Subject, "/")+1:]
		if got, want := strings.Contains(r.Text, "--kernel host"), mode == "iptables" || mode == "nftables"; got != want {
			t.Errorf("%+v names the host's kernel: %t, want %t", r, got, want)
		}
	}
}

func TestBuiltProxies(t *testing.T) {
	_, built, err := without(nil, "v1.12.2", "v1.25.3", "v1.37.1").subjects()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, b := range built {
		got = append(got, b.Version+": "+strings.Join(b.Modes, " ")+": "+b.Fallback)
	}
	want := []string{"v1.12.2: userspace iptables ipvs: off", "v1.25.3: userspace iptables ipvs: off, can be switched", "v1.37.1: iptables ipvs nftables: on"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	broken := machine{has: func(string) bool { return true }, built: func() ([]build.Target, error) { return nil, errors.New("no cache") }}
	if _, _, err := broken.subjects(); err == nil {
		t.Error("a cache that cannot be read is taken for an empty one")
	}
}
