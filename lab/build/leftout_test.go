package build

import (
	"strings"
	"testing"

	"golang.org/x/mod/module"
)

var agent = Target{"cilium-agent", "v1.20.2"}

// addCilium adds a Cilium whose part BGP needs a module that is not served.
func addCilium(t *testing.T, f *fakeGo, version string) {
	t.Helper()
	m := map[string]string{
		"go.mod":                              "module github.com/cilium/cilium\n\ngo 1.26.0\n\nrequire (\n\tgithub.com/osrg/gobgp/v4 v4.0.0\n\tgithub.com/cilium/hive v1.0.0\n\tgithub.com/go-openapi/runtime v1.0.0\n)\n",
		"daemon/main.go":                      pkg("main", "github.com/cilium/cilium/pkg/bgp"),
		"plugins/cilium-cni/main.go":          pkg("main", "fmt"),
		"pkg/bgp/cell.go":                     pkg("bgp", "github.com/osrg/gobgp/v4"),
		"pkg/bgp/option/option.go":            pkg("option"),
		"api/v1/server/restapi/bgp/handle.go": pkg("bgp"),
	}
	f.modules["github.com/cilium/cilium@"+version] = files(t, m)
	f.modules["github.com/cilium/hive@v1.0.0"] = files(t, map[string]string{"cell/cell.go": pkg("cell")})
	f.modules["github.com/go-openapi/runtime@v1.0.0"] = files(t, map[string]string{"middleware/m.go": pkg("middleware")})
}

// A part that needs a module which is not served is left out of the versions that the table names, and of no other one.
func TestAPartIsLeftOut(t *testing.T) {
	f := newFakeGo(t)
	addCilium(t, f, "v1.20.2")
	addCilium(t, f, "v1.19.0")
	b, _ := newBuilder(t, f)
	bin := mustBuild(t, b, agent)[0]
	notes := strings.Join(bin.Notes, "\n")
	if want := "without BGP: pkg/bgp/cell.go is replaced, because it needs github.com/osrg/gobgp/v4"; !strings.Contains(notes, want) {
		t.Errorf("notes lack %q:\n%s", want, notes)
	}
	if strings.Contains(f.mods[0], "gobgp") || !strings.Contains(f.mods[0], "github.com/cilium/cilium => ./staging/github.com/cilium/cilium") {
		t.Errorf("go.mod is\n%s", f.mods[0])
	}
	if !strings.Contains(f.jobs[0].Ldflags, "pkg/version.ciliumVersion=1.20.2 ") {
		t.Errorf("flags are %q", f.jobs[0].Ldflags)
	}
	if original := content(t, f.modules["github.com/cilium/cilium@v1.20.2"]+"/pkg/bgp/cell.go"); !strings.Contains(original, "gobgp") {
		t.Error("the module itself was changed")
	}
	if _, err := b.Build(t.Context(), Target{"cilium-agent", "v1.19.0"}); err == nil || !strings.Contains(err.Error(), "gobgp") {
		t.Errorf("a version without a row: %v", err)
	}
}

func TestLeftOut(t *testing.T) {
	for version, want := range map[string]string{"v1.20.2": "BGP", "v1.20.0": "BGP", "v1.15.19": "", "v1.2.0": ""} {
		if got := LeftOut(module.Version{Path: "github.com/cilium/cilium", Version: version}); got != want {
			t.Errorf("left out of %s: %q, want %q", version, got, want)
		}
	}
}

// The tables are inputs of their own programs only.
func TestATableChangesOnlyItsPrograms(t *testing.T) {
	before := ciliumText
	defer func() { ciliumText = before }()
	proxyID, agentID := recipeID(proxy), recipeID(agent)
	ciliumText += "\n"
	if recipeID(proxy) != proxyID {
		t.Error("kube-proxy would be built again after a change of Cilium's table")
	}
	if recipeID(agent) == agentID {
		t.Error("cilium-agent would not be resolved again")
	}
}
