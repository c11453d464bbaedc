package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const readme = "../../README.md"

// README.md fits two screens, and its examples are few.
func TestReadmeIsShort(t *testing.T) {
	text := read(t, readme)
	if lines := strings.Count(text, "\n"); lines > 90 {
		t.Errorf("README.md has %d lines, want at most 90", lines)
	}
	_, examples, _ := strings.Cut(text, "## Examples")
	examples, _, _ = strings.Cut(examples, "## ")
	if n := strings.Count(examples, "\n    hitless "); n != 5 {
		t.Errorf("README.md has %d examples, want 5", n)
	}
}

// Every command line in the documentation parses: its commands and flags exist, and its flags have valid values.
func TestDocsCommandsParse(t *testing.T) {
	command := regexp.MustCompile(`^(?:- run: |- |run: |hitless lab shell -- )?(?:\S*/)?hitless ([a-z].*)$`)
	parsed := 0
	for _, page := range docPages(t) {
		text := strings.ReplaceAll(read(t, page), "\\\n", " ")
		code := ""
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "```") {
				if code == "" {
					code = strings.TrimSpace(line)
				} else {
					code = ""
				}
				continue
			}
			if code == "" && !strings.HasPrefix(line, "    ") {
				continue
			}
			line, _, _ = strings.Cut(strings.TrimSpace(line), " #")
			if strings.HasPrefix(line, "hitless timeline ") { // a timeline's first line
				continue
			}
			for part := range strings.FieldsFuncSeq(line, func(r rune) bool { return r == ';' || r == '&' || r == '|' }) {
				if m := command.FindStringSubmatch(strings.TrimSpace(part)); m != nil {
					if err := parses(m[1]); err != nil {
						t.Errorf("%s: hitless %s: %v", page, m[1], err)
					}
					parsed++
				}
			}
		}
	}
	if parsed < 40 {
		t.Errorf("only %d command lines were found", parsed)
	}
	for _, bad := range []string{"rn rollout", "run rollout --subjct bundled", "run rollout --seed one", "report"} {
		if parses(bad) == nil {
			t.Errorf("hitless %s was accepted", bad)
		}
	}
}

// parses returns an error unless a line is a command of this program with flags that it has. It runs nothing.
func parses(line string) error {
	line, _, _ = strings.Cut(line, " > ")
	words := strings.Fields(strings.ReplaceAll(line, `"`, ""))
	cmd, rest, err := root().Find(words)
	if err != nil {
		return err
	}
	if cmd.DisableFlagParsing {
		return nil
	}
	for _, flag := range words {
		if flag == "--" {
			break
		}
		if name, is := strings.CutPrefix(flag, "--"); is {
			name, _, _ = strings.Cut(name, "=")
			if name != "help" && lookup(cmd, name) == nil {
				return &unknownFlag{name, cmd.CommandPath()}
			}
		}
	}
	cmd.InitDefaultHelpFlag()
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	return cmd.ValidateArgs(cmd.Flags().Args())
}

func lookup(cmd *cobra.Command, name string) *pflag.Flag {
	if f := cmd.Flags().Lookup(name); f != nil {
		return f
	}
	return cmd.InheritedFlags().Lookup(name)
}

type unknownFlag struct{ flag, command string }

func (e *unknownFlag) Error() string { return e.command + " has no flag --" + e.flag }

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
