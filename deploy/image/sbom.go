package main

import (
	"io"
	"runtime/debug"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// writeSBOM writes the SBOM of the image with the digest, as CycloneDX 1.6 in JSON. Its components are those of the program's build
// information: linked modules with their sums, and Go's standard library; the image has no others. Build information has no
// licenses and no module graph. A time and a serial number are left out, so that equal images have equal SBOMs.
func writeSBOM(w io.Writer, p *program, image v1.Hash) error {
	components, parts := p.components()
	components = append([]cdx.Component{p.component()}, components...)
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Component: &cdx.Component{BOMRef: "image", Type: cdx.ComponentTypeContainer, Name: "hitless", Version: image.String(),
		Hashes: &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: image.Hex}}}}
	bom.Components = &components
	bom.Dependencies = &[]cdx.Dependency{{Ref: "image", Dependencies: &[]string{"program"}}, {Ref: "program", Dependencies: &parts}}
	return encode(w, bom)
}

// writeProgramSBOM writes the SBOM of a program alone, with the same components.
func writeProgramSBOM(w io.Writer, p *program) error {
	components, parts := p.components()
	main := p.component()
	bom := cdx.NewBOM()
	bom.Metadata, bom.Components = &cdx.Metadata{Component: &main}, &components
	bom.Dependencies = &[]cdx.Dependency{{Ref: "program", Dependencies: &parts}}
	return encode(w, bom)
}

func encode(w io.Writer, bom *cdx.BOM) error {
	return cdx.NewBOMEncoder(w, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cdx.SpecVersion1_6)
}

// component is the program itself.
func (p *program) component() cdx.Component {
	version := p.version
	if version == "" {
		version = versionOf(p.info.Main.Version)
	}
	return cdx.Component{BOMRef: "program", Type: cdx.ComponentTypeApplication, Name: p.info.Path, Version: p.digest.String(),
		Hashes: &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: p.digest.Hex}}, PackageURL: purl(p.info.Main.Path, version)}
}

// components are the parts of the program, and their references.
func (p *program) components() (components []cdx.Component, parts []string) {
	components = []cdx.Component{{BOMRef: "std", Type: cdx.ComponentTypeLibrary, Name: "std", Version: goVersion(p.info.GoVersion),
		PackageURL: purl("std", goVersion(p.info.GoVersion))}}
	parts = []string{"std"}
	for _, m := range p.info.Deps {
		c := moduleOf(m)
		components, parts = append(components, c), append(parts, c.BOMRef)
	}
	return components, parts
}

// moduleOf is the component of a linked module, or of its replacement.
func moduleOf(m *debug.Module) cdx.Component {
	if m.Replace != nil {
		m = m.Replace
	}
	c := cdx.Component{BOMRef: m.Path + "@" + m.Version, Type: cdx.ComponentTypeLibrary, Name: m.Path, Version: m.Version, PackageURL: purl(m.Path, m.Version)}
	if m.Sum != "" { // the hash of go.sum, which is not an algorithm of CycloneDX
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

// versionOf returns no version for a build without a tag.
func versionOf(version string) string {
	if version == "(devel)" {
		return ""
	}
	return version
}

// goVersion is Go's version in the format of vulnerability databases.
func goVersion(text string) string {
	version, _, _ := strings.Cut(strings.TrimPrefix(text, "go"), " ")
	return version
}
