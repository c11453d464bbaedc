package timeline_test

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/hitless/hitless/scenarios/timeline"
)

var linePrefix = regexp.MustCompile(`^f:([0-9]+): .`)

// checkError checks that an error names an existing line of the text.
func checkError(t interface{ Fatalf(string, ...any) }, text string, err error) {
	m := linePrefix.FindStringSubmatch(err.Error())
	if m == nil {
		t.Fatalf("%q gave an error without a line: %v", text, err)
	}
	if n, _ := strconv.Atoi(m[1]); n < 1 || n > 1+strings.Count(text, "\n") {
		t.Fatalf("%q gave an error with a line that does not exist: %v", text, err)
	}
}

// checkParse checks that Parse returns either an error with a line, or a timeline that is the same after printing and parsing.
func checkParse(t interface{ Fatalf(string, ...any) }, text string) {
	line, err := timeline.Parse("f", []byte(text))
	if err != nil {
		checkError(t, text, err)
		return
	}
	printed := line.String()
	again, err := timeline.Parse("f", []byte(printed))
	if err != nil || again.String() != printed {
		t.Fatalf("%q is printed as\n%s\nwhich is parsed as %v, %v", text, printed, again, err)
	}
	if n := len(line.Steps); n == 0 || line.Steps[n-1].Verb != timeline.End {
		t.Fatalf("%q is parsed without an end", text)
	}
}

// Lines and bytes of a timeline are removed, repeated, cut off or replaced.
func TestParseMalformedTimelines(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := anyTimeline(t).String()
		for range rapid.IntRange(1, 4).Draw(t, "mistakes") {
			if text == "" {
				break
			}
			from := rapid.IntRange(0, len(text)-1).Draw(t, "from")
			to := rapid.IntRange(from, min(len(text), from+40)).Draw(t, "to")
			switch rapid.IntRange(0, 4).Draw(t, "mistake") {
			case 0:
				text = text[:from] + text[to:]
			case 1:
				text = text[:to] + text[from:]
			case 2:
				text = text[:from]
			case 3:
				text = text[:from] + rapid.SampledFrom([]string{"\x00", "\xff", "\n", "\r\n", "{", "}", "\"", "+", " ", "\t", "-9223372036854775808ns", "#", "=", "\u2028", "end"}).Draw(t, "put in") + text[to:]
			case 4:
				text = text[:from] + string(rapid.SliceOfN(rapid.Byte(), 1, 4).Draw(t, "bytes")) + text[to:]
			}
		}
		checkParse(t, text)
	})
}
