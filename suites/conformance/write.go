package conformance

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/onsi/ginkgo/v2/reporters"
	"github.com/onsi/ginkgo/v2/types"
	"go.yaml.in/yaml/v3"

	"github.com/hitless/hitless/internal/cache"
	"github.com/hitless/hitless/internal/input"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/reports"
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

// Is reports whether a folder holds a report.
func Is(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, File))
	return err == nil
}

// Write writes the files of a report into a folder, each in one step. key signs it, unless it is nil. of is Ginkgo's report. Without it, as
// for joined shards, Ginkgo's files are made from the report: they have no times then.
func Write(dir string, r *Report, key ed25519.PrivateKey, of *types.Report) error {
	text, err := encode(r, key)
	if err != nil {
		return err
	}
	var page bytes.Buffer
	if err := templates.ExecuteTemplate(&page, "page.html", pageOf{r, dir}); err != nil {
		return fmt.Errorf("drawing the page of the suite: %w", err)
	}
	err = errors.Join(cache.WriteFile(filepath.Join(dir, File), text), cache.WriteFile(filepath.Join(dir, PageFile), page.Bytes()))
	if err != nil {
		return err
	}
	if of == nil {
		of = r.ginkgo()
	}
	return errors.Join(reporters.GenerateJUnitReport(*of, filepath.Join(dir, junitFile)), reporters.GenerateJSONReport(*of, filepath.Join(dir, ginkgoFile)))
}

// ginkgoStates are the states of Ginkgo for those of specs. One that was not run is an error in JUnit, because the suite is not green.
var ginkgoStates = map[State]types.SpecState{Passed: types.SpecStatePassed, Failed: types.SpecStateFailed, Invalid: types.SpecStateFailed,
	Skipped: types.SpecStateSkipped, NotRun: types.SpecStateInterrupted}

// ginkgo is the report as one of Ginkgo, without times.
func (r *Report) ginkgo() *types.Report {
	of := &types.Report{SuiteDescription: description, SuiteSucceeded: r.ExitCode() == 0, SuiteConfig: types.SuiteConfig{RandomSeed: r.Seed}}
	if r.Ended != "" {
		of.SpecialSuiteFailureReasons = []string{r.Ended}
	}
	for _, s := range r.Specs {
		of.SpecReports = append(of.SpecReports, types.SpecReport{ContainerHierarchyTexts: []string{container}, ContainerHierarchyLabels: [][]string{{}},
			LeafNodeType: types.NodeTypeIt, LeafNodeText: textOf(s.Name, s.Promise, s.Source), LeafNodeLabels: s.Labels,
			State: ginkgoStates[s.State], Failure: types.Failure{Message: strings.Join(append([]string{string(s.State)}, s.Reasons...), "; ")}})
	}
	return of
}

// pageOf is what the page of a report shows in a folder.
type pageOf struct {
	*Report
	dir string
}

// section lists the specs that are red for the same reason.
type section struct {
	Title string
	Specs []Result
}

// Red are the specs that failed, and apart from them those about which the suite says nothing.
func (p pageOf) Red() (red []section) {
	for _, of := range []struct {
		title string
		state State
	}{{"Failed", Failed}, {"Invalid, which says nothing about the proxy", Invalid}} {
		specs := slices.DeleteFunc(slices.Clone(p.Specs), func(s Result) bool { return s.State != of.state })
		if len(specs) > 0 {
			red = append(red, section{of.title, specs})
		}
	}
	return red
}

// Link is the file of a spec's run that shows most: its report, or its record. It is empty where the folder of the page has neither, as for
// a run that ended before it had a record, and for a run in the folder of a shard.
func (p pageOf) Link(r Result) string {
	if r.Run == "" {
		return ""
	}
	for _, name := range []string{reports.PageFile, record.HistoryDir + "/" + record.EventsFile} {
		if _, err := os.Stat(filepath.Join(p.dir, r.Run, name)); err == nil {
			return path.Join(r.Run, name)
		}
	}
	return ""
}

// Keep writes the report in the folder dir into a file, with when and with what its runs were made. The copy has no signature.
func Keep(ctx context.Context, dir, file string) error {
	r, err := Read(ctx, dir, nil)
	if err != nil {
		return err
	}
	r.Made = nil
	for _, s := range r.Specs {
		if s.Run == "" || slices.ContainsFunc(r.Made, func(m RunMade) bool { return m.Run == s.Run }) {
			continue
		}
		made, err := record.MadeIn(os.DirFS(filepath.Join(dir, s.Run)))
		if err == nil && made == nil {
			err = fmt.Errorf("%s has no %s", filepath.Join(dir, s.Run), record.HostFile)
		}
		if err != nil {
			return fmt.Errorf("keeping %s: %w; keep results where they were made", filepath.Join(dir, File), err)
		}
		r.Made = append(r.Made, RunMade{s.Run, *made})
	}
	text, err := encode(r, nil)
	if err != nil {
		return err
	}
	return cache.WriteFile(file, text)
}

func encode(r *Report, key ed25519.PrivateKey) ([]byte, error) {
	var b bytes.Buffer
	encoder := yaml.NewEncoder(&b)
	encoder.SetIndent(2)
	if err := errors.Join(encoder.Encode(r), encoder.Close()); err != nil {
		return nil, fmt.Errorf("encoding the conformance report: %w", err)
	}
	return seal(b.Bytes(), key), nil
}

// sealLine begins the line of a report that has the digest of all lines above. In a signed report one more line follows, with the name of the
// key and the signature of all lines above it.
const (
	sealLine = "# sha256 of the lines above: "
	signLine = "# signed with ed25519: "
)

func seal(text []byte, key ed25519.PrivateKey) []byte {
	sealed := fmt.Appendf(text, "%s%x\n", sealLine, sha256.Sum256(text))
	if key == nil {
		return sealed
	}
	signer, signature := record.Sign(key, sealed)
	return fmt.Appendf(sealed, "%s%s %s\n", signLine, signer, signature)
}

// checkSeal returns an error for a report that was changed after its suite, and for one that is not signed with the private part of key,
// unless that is nil.
func checkSeal(text []byte, key ed25519.PublicKey) error {
	sealed, signature := text, ""
	if at := bytes.LastIndex(text, []byte("\n"+signLine)) + 1; at > 0 {
		sealed, signature = text[:at], string(text[at+len(signLine):])
	}
	end := bytes.LastIndex(sealed, []byte("\n"+sealLine)) + 1
	if end == 0 {
		return errors.New("it has no digest at its end, so that it cannot be trusted")
	}
	if !bytes.Equal(seal(bytes.Clone(sealed[:end]), nil), sealed) {
		return errors.New("it was changed: its digest is not that at its end")
	}
	signature = strings.TrimSuffix(signature, "\n")
	if strings.Contains(signature, "\n") {
		return errors.New("it has lines after its signature, so that it cannot be trusted")
	}
	if key == nil {
		return nil
	}
	signer, signature, _ := strings.Cut(signature, " ")
	return record.VerifySignature(key, "it", sealed, signer, signature)
}

// Read reads the report in a folder of results. It refuses changed reports, unknown fields and other versions, and reports that are not signed
// with the private part of key, unless that is nil.
func Read(ctx context.Context, dir string, key ed25519.PublicKey) (*Report, error) {
	file := filepath.Join(dir, File)
	data, err := input.Read(ctx, file, input.TextBytes)
	if err != nil {
		return nil, fmt.Errorf("reading a conformance report: %w; `hitless conformance` writes one", err)
	}
	if err := checkSeal(data, key); err != nil {
		return nil, &record.DamageError{Folder: dir, Reason: File + ": " + err.Error()}
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
