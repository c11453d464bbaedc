package main

import (
	"io"
	"runtime/debug"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// writeBill writes the bill of materials of an image, CycloneDX 1.6 as JSON, from what the program says of its own build: the
// modules that are linked into it with their sums, and Go's own library. There is nothing else in the image. The build knows no
// licenses and no graph of modules, so neither is told; and no time or serial number, so that the same image has the same bill.
func writeBill(w io.Writer, p *program, img *image) error {
	main := cdx.Component{BOMRef: "program", Type: cdx.ComponentTypeApplication, Name: p.info.Path, Version: p.digest.String(),
		Hashes: &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: p.digest.Encoded()}}, PackageURL: purl(p.info.Main.Path, versionOf(p.info.Main.Version))}
	components := []cdx.Component{main, {BOMRef: "std", Type: cdx.ComponentTypeLibrary, Name: "std", Version: goVersion(p.info.GoVersion),
		PackageURL: purl("std", goVersion(p.info.GoVersion))}}
	parts := []string{"std"}
	for _, m := range p.info.Deps {
		c := moduleOf(m)
		components, parts = append(components, c), append(parts, c.BOMRef)
	}
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Component: &cdx.Component{BOMRef: "image", Type: cdx.ComponentTypeContainer, Name: "hitless", Version: img.manifest.Digest.String(),
		Hashes: &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: img.manifest.Digest.Encoded()}}}}
	bom.Components = &components
	bom.Dependencies = &[]cdx.Dependency{{Ref: "image", Dependencies: &[]string{"program"}}, {Ref: "program", Dependencies: &parts}}
	return cdx.NewBOMEncoder(w, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cdx.SpecVersion1_6)
}

// moduleOf is a module of the program, the one that stands in its place if it was replaced.
func moduleOf(m *debug.Module) cdx.Component {
	if m.Replace != nil {
		m = m.Replace
	}
	c := cdx.Component{BOMRef: m.Path + "@" + m.Version, Type: cdx.ComponentTypeLibrary, Name: m.Path, Version: m.Version, PackageURL: purl(m.Path, m.Version)}
	if m.Sum != "" { // of the module's zip, as in go.sum, which is none of the hashes that CycloneDX knows
		c.Properties = &[]cdx.Property{{Name: "go:sum", Value: m.Sum}}
	}
	return c
}

// purl is a package URL of the type golang.
func purl(module, version string) string {
	text := "pkg:golang/" + strings.ToLower(module)
	if version != "" {
		text += "@" + strings.ReplaceAll(version, "+", "%2B")
	}
	return text
}

// versionOf is a version that means something: a build without a tag has none.
func versionOf(version string) string {
	if version == "(devel)" {
		return ""
	}
	return version
}

// goVersion is Go's version as the databases of vulnerabilities write it.
func goVersion(text string) string {
	version, _, _ := strings.Cut(strings.TrimPrefix(text, "go"), " ")
	return version
}
