package timeline_test

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/hitless/hitless/scenarios/timeline"
)

var place = regexp.MustCompile(`^f:([0-9]+): .`)

// refused checks an error: it names a line that the text has.
func refused(t interface{ Fatalf(string, ...any) }, text string, err error) {
	m := place.FindStringSubmatch(err.Error())
	if m == nil {
		t.Fatalf("%q gave an error without a line: %v", text, err)
	}
	if n, _ := strconv.Atoi(m[1]); n < 1 || n > 1+strings.Count(text, "\n") {
		t.Fatalf("%q gave an error in a line that it does not have: %v", text, err)
	}
}

// readOrRefused is all that a parser may do: give a timeline that is printed and read back as itself, or an error.
func readOrRefused(t interface{ Fatalf(string, ...any) }, text string) {
	line, err := timeline.Parse("f", []byte(text))
	if err != nil {
		refused(t, text, err)
		return
	}
	printed := line.String()
	again, err := timeline.Parse("f", []byte(printed))
	if err != nil || again.String() != printed {
		t.Fatalf("%q is read, and printed as\n%s\nwhich is read as %v, %v", text, printed, again, err)
	}
	if n := len(line.Steps); n == 0 || line.Steps[n-1].Verb != timeline.End {
		t.Fatalf("%q is read without an end", text)
	}
}

// What a mistake, or a disk, makes of a timeline: lines and bytes that are missing, there twice, in another place, or others.
func TestAMalformedTimelineIsReadOrRefused(t *testing.T) {
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
		readOrRefused(t, text)
	})
}
