package hitless_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// retryOptions matches the options that repeat a test until it passes.
var retryOptions = regexp.MustCompile(`(?i)flake-?attempts|must-?pass-?repeatedly|until-it-fails|gotestsum[^\n]*rerun|--rerun-fails|nick-fields/retry|continue-on-error: *true`)

// No test is repeated until it passes: a pass at the third attempt hides two failures.
func TestNoTestIsRepeatedUntilItPasses(t *testing.T) {
	files := 0
	for _, root := range []string{".github", ".ci", "hack", "suites", "Makefile"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			files++
			for i, line := range strings.Split(string(text), "\n") {
				if found := retryOptions.FindString(line); found != "" {
					t.Errorf("%s:%d: %q repeats a test until it passes", path, i+1, found)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if files < 10 {
		t.Errorf("only %d files were read", files)
	}
	for _, bad := range []string{`FlakeAttempts(3)`, `ginkgo --flake-attempts=2`, `MustPassRepeatedly(2)`, `continue-on-error: true`} {
		if !retryOptions.MatchString(bad) {
			t.Errorf("%q is not found", bad)
		}
	}
}

// Each test in the table of pitfalls in docs/measuring.md exists.
func TestPitfallsHaveTests(t *testing.T) {
	page, err := os.ReadFile("docs/measuring.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(page), "| pitfall | tests |")
	table, _, ended := strings.Cut(table, "\n\n")
	if !found || !ended {
		t.Fatal("docs/measuring.md has no table of pitfalls")
	}
	tests := map[string]bool{}
	err = filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if notSource(d) {
			return fs.SkipDir
		}
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(string(text), -1) {
			tests[m[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(table, -1)
	if len(named) < 9 {
		t.Errorf("the table names only %d tests", len(named))
	}
	for _, m := range named {
		if !tests[m[1]] {
			t.Errorf("docs/measuring.md names %s, and there is no such test", m[1])
		}
	}
}
