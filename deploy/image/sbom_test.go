package main

import (
	"debug/buildinfo"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// schema compiles the schema of the specification, which the module cyclonedx-go contains.
func schema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/CycloneDX/cyclonedx-go").Output()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(strings.TrimSpace(string(out)), "schema")
	compiler := jsonschema.NewCompiler()
	for _, name := range []string{"bom-1.6.schema.json", "spdx.schema.json", "jsf-0.82.schemax.json"} {
		data, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := jsonschema.UnmarshalJSON(data)
		data.Close()
		if err != nil {
			t.Fatal(err)
		}
		if err := compiler.AddResource("http://cyclonedx.org/schema/"+strings.Replace(name, "schemax", "schema", 1), parsed); err != nil {
			t.Fatal(err)
		}
	}
	compiled, err := compiler.Compile("http://cyclonedx.org/schema/bom-1.6.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return compiled
}

// checkSBOM validates an SBOM against the specification and compares it with the program's build information.
func checkSBOM(t *testing.T, dir string, info *buildinfo.BuildInfo) {
	t.Helper()
	text := read(t, dir, sbomFile)
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	rules := schema(t)
	if err := rules.Validate(value); err != nil {
		t.Errorf("the SBOM is not valid CycloneDX 1.6: %v", err)
	}
	value.(map[string]any)["components"].([]any)[0].(map[string]any)["type"] = "thing"
	if rules.Validate(value) == nil {
		t.Error("the schema accepts a component of an unknown type")
	}
	var bom cdx.BOM
	if err := json.Unmarshal([]byte(text), &bom); err != nil {
		t.Fatal(err)
	}
	var has []string
	for _, c := range *bom.Components {
		has = append(has, c.PackageURL)
	}
	want := []string{purl(info.Main.Path, versionOf(info.Main.Version)), purl("std", goVersion(info.GoVersion))}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		want = append(want, purl(m.Path, m.Version))
	}
	slices.Sort(has)
	slices.Sort(want)
	if !slices.Equal(has, want) {
		t.Errorf("the SBOM has %q\nthe program %q", has, want)
	}
	if bom.Metadata.Component.Version != open(t, dir).index.Manifests[0].Digest.String() {
		t.Errorf("the SBOM is of %s, which is not the image", bom.Metadata.Component.Version)
	}
}

func TestSBOMListsTheModules(t *testing.T) {
	program := filepath.Join(t.TempDir(), "program")
	cmd := exec.Command("go", append(append([]string{"build"}, static...), "-o", program, ".")...) // this program has modules
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	p, err := readProgram(program)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.info.Deps) < 3 {
		t.Fatalf("the program has %d modules", len(p.info.Deps))
	}
	checkSBOM(t, makeImage(t, program, "tests:v1"), p.info)
}

// The SBOM lists the replacement of a replaced module.
func TestSBOMOfAReplacedModule(t *testing.T) {
	c := moduleOf(&debug.Module{Path: "example.com/A", Version: "v1.0.0", Replace: &debug.Module{Path: "example.com/B", Version: "v2.0.0+incompatible", Sum: "h1:x"}})
	if c.Name != "example.com/B" || c.PackageURL != "pkg:golang/example.com/b@v2.0.0%2Bincompatible" || (*c.Properties)[0].Value != "h1:x" {
		t.Errorf("%+v", c)
	}
	for text, want := range map[string]string{"go1.26.8": "1.26.8", "go1.26.8 X:loopvar": "1.26.8"} {
		if got := goVersion(text); got != want {
			t.Errorf("%s is %s, want %s", text, got, want)
		}
	}
}
