package conformance

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"path/filepath"

	"github.com/onsi/ginkgo/v2/reporters"
	"github.com/onsi/ginkgo/v2/types"
	"go.yaml.in/yaml/v3"

	"github.com/hitless/hitless/internal/cache"
	"github.com/hitless/hitless/internal/input"
)

// The files of the results, beside the folder of runs.
const (
	File       = "conformance.yaml"
	PageFile   = "conformance.html"
	junitFile  = "junit.xml"
	ginkgoFile = "ginkgo.json"
)

// Schema is the JSON Schema (2020-12) of conformance.yaml.
//
//go:embed schema.json
var Schema []byte

//go:embed *.html
var pages embed.FS

// templates are the pages of a report and of a matrix, which share their head.
var templates = template.Must(template.ParseFS(pages, "*.html"))

// Write writes the files of a report into a folder, each in one step. of is Ginkgo's report; nil for none.
func Write(dir string, r *Report, of *types.Report) error {
	text, err := encode(r)
	if err != nil {
		return err
	}
	var page bytes.Buffer
	if err := templates.ExecuteTemplate(&page, "page.html", r); err != nil {
		return fmt.Errorf("drawing the page of the suite: %w", err)
	}
	err = errors.Join(cache.WriteFile(filepath.Join(dir, File), text), cache.WriteFile(filepath.Join(dir, PageFile), page.Bytes()))
	if err != nil || of == nil {
		return err
	}
	return errors.Join(reporters.GenerateJUnitReport(*of, filepath.Join(dir, junitFile)), reporters.GenerateJSONReport(*of, filepath.Join(dir, ginkgoFile)))
}

func encode(r *Report) ([]byte, error) {
	var b bytes.Buffer
	encoder := yaml.NewEncoder(&b)
	encoder.SetIndent(2)
	if err := errors.Join(encoder.Encode(r), encoder.Close()); err != nil {
		return nil, fmt.Errorf("encoding the conformance report: %w", err)
	}
	return seal(b.Bytes()), nil
}

// sealLine begins the last line of a report, which has the digest of all lines above.
const sealLine = "# sha256 of the lines above: "

func seal(text []byte) []byte { return fmt.Appendf(text, "%s%x\n", sealLine, sha256.Sum256(text)) }

// checkSeal returns an error for a report that was changed after its suite.
func checkSeal(sealed []byte) error {
	end := bytes.LastIndex(sealed, []byte("\n"+sealLine)) + 1
	if end == 0 {
		return errors.New("its last line has no digest, so that it cannot be trusted")
	}
	if !bytes.Equal(seal(bytes.Clone(sealed[:end])), sealed) {
		return errors.New("it was changed: its digest is not that of its last line")
	}
	return nil
}

// Read reads the report in a folder of results. It refuses changed reports, unknown fields and other versions.
func Read(ctx context.Context, dir string) (*Report, error) {
	file := filepath.Join(dir, File)
	data, err := input.Read(ctx, file, input.TextBytes)
	if err != nil {
		return nil, fmt.Errorf("reading a conformance report: %w; `hitless conformance` writes one", err)
	}
	if err := checkSeal(data); err != nil {
		return nil, fmt.Errorf("reading %s: %w; `hitless conformance` writes it again", file, err)
	}
	var r Report
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	decoder.KnownFields(true)
	if err := decoder.Decode(&r); err != nil {
		return nil, fmt.Errorf("reading %s: %w; `hitless conformance` writes it again", file, err)
	}
	if r.Kind != "ConformanceSuiteReport" || r.SchemaVersion != ReportVersion {
		return nil, fmt.Errorf("reading %s: it is a %q of version %d, want a ConformanceSuiteReport of version %d; `hitless conformance` writes it again",
			file, r.Kind, r.SchemaVersion, ReportVersion)
	}
	return &r, nil
}
