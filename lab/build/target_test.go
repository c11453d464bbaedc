package build

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseTarget(t *testing.T) {
	for _, want := range []Target{
		{"kube-proxy", "v1.11.0"}, {"kube-proxy", "v1.37.99"}, {"kube-apiserver", "v1.15.12"}, {"kube-scheduler", "v1.37.1"},
		{"kube-controller-manager", "v1.37.0-rc.1"}, {"etcd", "v3.7.0"},
	} {
		got, err := ParseTarget(want.String())
		if err != nil || got != want {
			t.Errorf("ParseTarget(%q) = %v, %v", want, got, err)
		}
	}
}

func TestParseTargetErrorsListWhatIsKnown(t *testing.T) {
	for in, want := range map[string]string{
		"":                       "is not NAME@VERSION",
		"kube-proxy":             "is not NAME@VERSION",
		"kubelet@v1.37.1":        `unknown program "kubelet"`,
		"kube-proxy@1.37.1":      "not of the form",
		"kube-proxy@v1.37":       "not of the form",
		"kube-proxy@v1.37.1/x":   "not of the form",
		"kube-proxy@v1.10.9":     "outside the supported range",
		"kube-proxy@v1.38.0":     "outside the supported range",
		"kube-apiserver@v1.14.0": "v1.15 to v1.37",
		"etcd@v3.4.0":            "v3.5 to v3.7",
		"kube-proxy@v2.0.0":      "outside the supported range",
	} {
		_, err := ParseTarget(in)
		if err == nil {
			t.Errorf("ParseTarget(%q) succeeded", in)
			continue
		}
		for _, part := range []string{want, "kube-proxy v1.11 to v1.37", "kube-apiserver", "kube-scheduler", "kube-controller-manager", "etcd v3.5"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("ParseTarget(%q): %q does not say %q", in, err, part)
			}
		}
	}
}

func TestDefaults(t *testing.T) {
	for name, want := range map[string]string{"etcd": "v3.7.0", "kube-apiserver": "v1.37.1", "kube-proxy": "v1.37.1"} {
		got, ok := Default(name)
		if !ok || got.Version != want {
			t.Errorf("Default(%q) = %v, %v, want %s", name, got, ok, want)
		}
	}
	if got, ok := Default("kubelet"); ok {
		t.Errorf("Default of an unknown program is %v", got)
	}
	for _, r := range Versions() {
		if _, err := ParseTarget(r.Name + "@" + r.Default); err != nil {
			t.Errorf("the default of %s: %v", r.Name, err)
		}
	}
}

func TestParseData(t *testing.T) {
	d, err := parseData("# comment\n\npin a.com/x v1.0.0 # why\npin a.com/x v1.1.0\nmoved a.com/old b.com/new v1.2.0\n" +
		"floor a.com/x v1.0.5 two words\nstandin a.com/x 0123456789ab v1.1.0 no name\n" +
		"program p a.com/p a.com/p/cmd/p v1.1 v1.2 v1.2.3\n")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string][]string{"a.com/x": {"v1.0.0", "v1.1.0"}}, d.pins); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]floor{"a.com/x": {Version: "v1.0.5", Reason: "two words"}}, d.floors); diff != "" {
		t.Error(diff)
	}
	want := []program{{Range: Range{Name: "p", Oldest: "v1.1", Newest: "v1.2", Default: "v1.2.3"}, Module: "a.com/p", Package: "a.com/p/cmd/p"}}
	if diff := cmp.Diff(want, d.programs); diff != "" {
		t.Error(diff)
	}
}

func TestParseDataRefuses(t *testing.T) {
	for _, line := range []string{"pin a.com/x", "pin a.com/x 1.0.0", "pinn a.com/x v1.0.0", "floor a.com/x v1.0.0", "moved a b c", "standin a b v1.0.0"} {
		_, err := parseData("# first\n" + line + "\n")
		if err == nil || !strings.Contains(err.Error(), "line 2") {
			t.Errorf("%q: error is %v", line, err)
		}
	}
}

// The table has a floor, a moved repository and pins for versions without a go.mod.
func TestEmbeddedData(t *testing.T) {
	d, err := embedded()
	if err != nil {
		t.Fatal(err)
	}
	if got := d.floors["github.com/modern-go/reflect2"].Version; got != "v1.0.2" {
		t.Errorf("reflect2 has floor %q", got)
	}
	if got := d.moved["bitbucket.org/ww/goautoneg"].To.Path; got != "github.com/munnerz/goautoneg" {
		t.Errorf("goautoneg moved to %q", got)
	}
	if len(d.pins) < 60 {
		t.Errorf("only %d modules are pinned", len(d.pins))
	}
}
