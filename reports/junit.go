package reports

import (
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/units"
	"github.com/hitless/hitless/record"
)

type junitSuites struct {
	XMLName xml.Name   `xml:"testsuites"`
	Suite   junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name       string          `xml:"name,attr"`
	Tests      int             `xml:"tests,attr"`
	Failures   int             `xml:"failures,attr"`
	Errors     int             `xml:"errors,attr"`
	Skipped    int             `xml:"skipped,attr"`
	Time       string          `xml:"time,attr"`
	Properties []junitProperty `xml:"properties>property"`
	Cases      []junitCase     `xml:"testcase"`
}

type junitProperty struct {
	Name  string `xml:"name,attr"`
	Value string `xml:"value,attr"`
}

type junitCase struct {
	Class   string       `xml:"classname,attr"`
	Name    string       `xml:"name,attr"`
	Time    string       `xml:"time,attr"`
	Failure *junitDetail `xml:"failure,omitempty"`
	Error   *junitDetail `xml:"error,omitempty"`
	Skipped *junitDetail `xml:"skipped,omitempty"`
}

type junitDetail struct {
	Message string `xml:"message,attr"`
	Type    string `xml:"type,attr,omitempty"`
	Text    string `xml:",chardata"`
}

// WriteJUnit writes junit.xml: one test case for the run's verdict. An invalid run is an error, not a failure: it says
// nothing about the subject.
func WriteJUnit(w io.Writer, r *analysis.Report, o record.Origin) error {
	length := strconv.FormatFloat(r.Run.Duration, 'f', 3, 64)
	test := junitCase{Class: "hitless." + r.Run.Scenario, Time: length,
		Name: fmt.Sprintf("%s stays within the loss budget: %s, seed %d", r.SubjectText(), analysis.SettingsOf(r.Run.Scenario, o.Command), r.Run.Seed)}
	suite := junitSuite{Name: "hitless " + r.Run.Scenario, Time: length, Properties: properties(r, o)}
	message := r.Headline()
	if r.Early != nil {
		message = r.Heading() + ": " + message
	}
	detail := &junitDetail{Message: message, Type: string(r.Verdict), Text: junitText(r, o, message)}
	suite.add(test, outcomes[r.Verdict], detail)
	return writeXML(w, junitSuites{Suite: suite})
}

// properties are facts of the run. A passed test case has no text, so that its notes are here too.
func properties(r *analysis.Report, o record.Origin) []junitProperty {
	all := []junitProperty{{"verdict", string(r.Verdict)}, {"seed", strconv.FormatInt(r.Run.Seed, 10)}, {"inputs sha256", r.Run.InputsSha256},
		{"history sha256", o.HistorySha256}, {"command", o.Command}}
	if r.Recovery != nil {
		all = append(all, junitProperty{"recovery", r.Recovery.Text})
	}
	excused := r.ExcuseTexts()
	for _, text := range excused {
		all = append(all, junitProperty{"excused", text})
	}
	if r.Verdict != analysis.Pass {
		return all
	}
	for _, text := range append([]string{r.Headline()}, r.Notes()...) {
		if !slices.Contains(excused, text) {
			all = append(all, junitProperty{"note", text})
		}
	}
	return all
}

// junitText is the long form: its first line is the message.
func junitText(r *analysis.Report, o record.Origin, message string) string {
	var b strings.Builder
	b.WriteString("\n" + message + "\n")
	for _, reason := range r.Notes() {
		b.WriteString(reason + "\n")
	}
	outages, more := longest(r, terminalOutages)
	for _, out := range outages {
		fmt.Fprintf(&b, "%s %s on %s (%s): %s\n", units.At(out.From), units.Range(out.LowerMs, out.UpperMs), analysis.NodeText(out.Node), analysis.ClassesText(out.Classes), out.Cause.Text)
	}
	if more > 0 {
		fmt.Fprintf(&b, "… %s\n", units.Plural(more, "more outage"))
	}
	if o.Command != "" {
		b.WriteString("repeat with: " + o.Command + "\n")
	}
	return b.String()
}

// JUnitOutcome is the outcome of a test case; empty for a case that passed.
type JUnitOutcome string

// The outcomes that need a reason.
const (
	JUnitFailed  JUnitOutcome = "failure"
	JUnitError   JUnitOutcome = "error" // it could not be judged
	JUnitSkipped JUnitOutcome = "skipped"
)

// JUnitCase is a test case with the reasons for its outcome.
type JUnitCase struct {
	Class, Name string
	Outcome     JUnitOutcome
	Reasons     []string
}

// WriteJUnitCases writes a suite of test cases that have no run in common.
func WriteJUnitCases(w io.Writer, name string, cases []JUnitCase) error {
	suite := junitSuite{Name: name, Time: "0"}
	for _, c := range cases {
		test := junitCase{Class: c.Class, Name: c.Name, Time: "0"}
		text := strings.Join(c.Reasons, "\n")
		suite.add(test, c.Outcome, &junitDetail{Message: text, Type: string(c.Outcome), Text: text})
	}
	return writeXML(w, junitSuites{Suite: suite})
}

// outcomes are the outcomes of the verdicts that need a reason.
var outcomes = map[analysis.Verdict]JUnitOutcome{analysis.Fail: JUnitFailed, analysis.Skipped: JUnitSkipped, analysis.Invalid: JUnitError}

// add adds a test case, with its detail where the outcome needs one, and counts it.
func (s *junitSuite) add(test junitCase, outcome JUnitOutcome, detail *junitDetail) {
	switch s.Tests++; outcome {
	case JUnitFailed:
		test.Failure, s.Failures = detail, s.Failures+1
	case JUnitError:
		test.Error, s.Errors = detail, s.Errors+1
	case JUnitSkipped:
		test.Skipped, s.Skipped = detail, s.Skipped+1
	}
	s.Cases = append(s.Cases, test)
}

func writeXML(w io.Writer, value any) error {
	data, err := xml.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("writing JUnit: %w", err)
	}
	_, err = io.WriteString(w, xml.Header+string(data)+"\n")
	return err
}
