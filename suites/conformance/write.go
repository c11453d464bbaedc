package conformance

import (
	"bytes"
	"context"
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
	return b.Bytes(), nil
}

// Read reads the report in a folder of results. It refuses unknown fields and other versions.
func Read(ctx context.Context, dir string) (*Report, error) {
	file := filepath.Join(dir, File)
	data, err := input.Read(ctx, file, input.TextBytes)
	if err != nil {
		return nil, fmt.Errorf("reading a conformance report: %w; `hitless conformance` writes one", err)
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
