package main

import (
	"go/parser"
	"go/token"
	"testing"
)

// Tags and labels decide where a test counts.
func TestTestsAreCountedByPlace(t *testing.T) {
	for name, c := range map[string]struct {
		source string
		want   [places]int
	}{
		"unit":                 {"package a\nfunc TestA(t *testing.T) {}\nfunc TestMain(m *testing.M) {}\nfunc FuzzB(f *testing.F) {}", [places]int{inUnit: 2}},
		"of a system":          {"//go:build linux\n\npackage a\nfunc TestA(t *testing.T) {}", [places]int{inUnit: 1}},
		"without a tag":        {"//go:build !netns\n\npackage a\nfunc TestA(t *testing.T) {}", [places]int{inUnit: 1}},
		"namespaces":           {"//go:build netns && bench\n\npackage a\nfunc TestA(t *testing.T) {}", [places]int{inNamespaces: 1}},
		"nightly by tag":       {"//go:build lab && nightly\n\npackage a\nfunc TestA(t *testing.T) {}", [places]int{inNightly: 1}},
		"nightly by name":      {"//go:build lab\n\npackage a\nfunc TestNightlyA(t *testing.T) {}\nfunc TestB(t *testing.T) {}", [places]int{inLabs: 1, inNightly: 1}},
		"specs":                {"//go:build lab\n\npackage a\nfunc TestA(t *testing.T) { RunSpecs(t, `a`) }\nvar _ = Describe(`x`, func() { It(`y`, func() {}); It(`z`, suites.Nightly, func() {}) })", [places]int{inLabs: 1, inNightly: 1}},
		"labels of a function": {"//go:build lab\n\npackage a\nfunc labelsOf() Labels { return suites.Nightly }\nvar _ = Describe(`x`, func() { It(`y`, labelsOf(), func() {}) })", [places]int{inLabs: 1, inNightly: 1}},
		"nightly container":    {"//go:build lab\n\npackage a\nvar _ = DescribeTable(`x`, suites.Nightly, f, Entry(`y`, 1), Entry(`z`, 2))", [places]int{inNightly: 2}},
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "a_test.go", c.source, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		var got [places]int
		if countTests(file, &got); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
