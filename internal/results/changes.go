package results

import (
	"fmt"
	"slices"

	"github.com/hitless/hitless/internal/units"
)

// Changes says in words how rows differ from those before: one line for each row that is new, gone, or has another verdict or other classes or
// causes, and a last line with the numbers. Kinds count only where both rows tell them.
func Changes(before, after []Row) (lines []string) {
	same, repeated := 0, 0
	for _, a := range after {
		name := a.File + ", " + a.Name
		i := indexOf(before, a)
		if i < 0 {
			lines = append(lines, fmt.Sprintf("%s is new: %s", name, a.Verdict))
			continue
		}
		b := before[i]
		switch {
		case a.Wrong != b.Wrong:
			lines = append(lines, fmt.Sprintf("%s: a result %s, was a result %s", name, acceptance(a), acceptance(b)))
		case a.Verdict != b.Verdict:
			lines = append(lines, fmt.Sprintf("%s: %s, was %s", name, a.Verdict, b.Verdict))
		case a.KindsTold && b.KindsTold && !slices.Equal(a.classes(), b.classes()):
			lines = append(lines, fmt.Sprintf("%s: %s with %s, was with %s", name, a.Verdict, textOf(a.classes()), textOf(b.classes())))
		default:
			same++
		}
		if a.HistorySha256 != b.HistorySha256 || a.Program != b.Program {
			repeated++
		}
	}
	for _, b := range before {
		if indexOf(after, b) < 0 {
			lines = append(lines, fmt.Sprintf("%s, %s is gone: it was %s", b.File, b.Name, b.Verdict))
		}
	}
	return append(lines, fmt.Sprintf("%s of %s have the verdict, classes and causes of before; %s were made anew", units.Thousands(same), units.Plural(len(after), "row"), units.Thousands(repeated)))
}

// acceptance says whether a result is accepted.
func acceptance(r Row) string {
	if r.Wrong == "" {
		return "that is accepted"
	}
	return r.Wrong
}

func indexOf(rows []Row, r Row) int {
	return slices.IndexFunc(rows, func(o Row) bool { return o.File == r.File && o.Name == r.Name })
}
