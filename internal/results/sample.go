package results

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hitless/hitless/analysis"
)

// Sampler repeats rows.
type Sampler struct {
	Program string // SHA-256 of this one
	Dir     string // folder for the runs, which exists; the folders row-N in it are replaced
	// Execute runs hitless with arguments. Its error says that there is no result; the exit code of a verdict is none.
	Execute func(ctx context.Context, args []string) error
	Log     func(line string)
	Now     func() time.Time
}

// Sample repeats n rows that the seed chooses among those with a command of their own, and returns why rows are listed, and the number that could
// be chosen from. Of one program a repetition must have the same history; of another one the same verdict, classes and causes. Folders of
// repetitions as expected are removed.
func (s Sampler) Sample(ctx context.Context, rows []Row, n int, seed int64) (found []Finding, of int, err error) {
	rows = slices.DeleteFunc(slices.Clone(rows), func(r Row) bool { return r.Again == nil })
	of = len(rows)
	order := rand.New(rand.NewPCG(uint64(seed), 0)).Perm(len(rows))
	begun := s.Now()
	for i, at := range order[:min(n, len(order))] {
		r := rows[at]
		s.announce(r, i, min(n, len(order)), begun)
		dir := filepath.Join(s.Dir, fmt.Sprintf("row-%d", i+1))
		if err := os.RemoveAll(dir); err != nil { // else an earlier repetition may be taken for this one
			return found, of, err
		}
		why, err := s.repeat(ctx, r, dir)
		if err != nil {
			return found, of, err
		}
		if why == "" {
			err = os.RemoveAll(dir)
		} else {
			found = append(found, Finding{File: r.File, Why: why, Rows: []string{r.Name}})
		}
		if err != nil {
			return found, of, err
		}
	}
	return found, of, nil
}

// usual is the time of a repetition until one was measured.
const usual = 100 * time.Second

func (s Sampler) announce(r Row, i, of int, begun time.Time) {
	each := usual
	if i > 0 {
		each = s.Now().Sub(begun) / time.Duration(i)
	}
	s.Log(fmt.Sprintf("row %d of %d: %s, %s; all rows end at about %s", i+1, of, r.File, r.Name, s.Now().Add(each*time.Duration(of-i)).Format("15:04")))
}

// repeat repeats a row in a folder. why is empty if the repetition is as expected.
func (s Sampler) repeat(ctx context.Context, r Row, dir string) (why string, err error) {
	if err := s.Execute(ctx, append(slices.Clone(r.Again.Args), "--out", dir)); err != nil {
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		return fmt.Sprintf("that cannot be repeated (%v)", err), nil
	}
	again, err := r.Again.Read(ctx, dir)
	if err != nil {
		return fmt.Sprintf("whose repetition in %s cannot be read (%v)", dir, err), nil
	}
	if why := s.differs(r, again); why != "" {
		return why + ", in " + dir, nil
	}
	return "", nil
}

// differs says what the repetition of a row has that it must not have.
func (s Sampler) differs(r, again Row) string {
	switch {
	case r.Program == s.Program && r.HistorySha256 != "" && r.HistorySha256 != again.HistorySha256:
		return fmt.Sprintf("of this program, whose repetition has another history: %.12s, not %.12s", again.HistorySha256, r.HistorySha256)
	case r.Verdict != again.Verdict:
		return fmt.Sprintf("whose repetition has another verdict: %s, not %s", again.Verdict, r.Verdict)
	case r.KindsTold && !slices.Equal(r.classes(), again.classes()):
		return fmt.Sprintf("whose repetition has other classes or causes: %s, not %s", textOf(again.classes()), textOf(r.classes()))
	}
	return ""
}

// classes are the classes and causes of the row's failures, sorted.
func (r Row) classes() []analysis.FailureKind {
	return slices.SortedFunc(slices.Values(r.Kinds), analysis.FailureKind.Compare)
}

func textOf(kinds []analysis.FailureKind) string {
	var words []string
	for _, k := range kinds {
		words = append(words, k.String())
	}
	if len(words) == 0 {
		return "none"
	}
	return strings.Join(words, ", ")
}
