package reports

import (
	"os"
	"path/filepath"
	"testing"

	"pgregory.net/rapid"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/record/recordtest"
)

// A history that was damaged on its way gives an error or a report, and the report passes its own agreement check or is
// not a pass; nothing panics.
func TestADamagedHistoryNeverPanics(t *testing.T) {
	o := recordtest.Rollout{Seed: 1, Rollouts: 1}
	histories := []*record.History{o.Start(o.Lab()).Write(t), recordtest.Calm().Thinned(t, 0)}
	rapid.Check(t, func(rt *rapid.T) {
		dir := t.TempDir()
		whole := rapid.SampledFrom(histories).Draw(rt, "history")
		for _, name := range []string{record.RunFile, record.EventsFile, record.AttemptsFile} {
			data, err := os.ReadFile(filepath.Join(whole.Dir(), name))
			if err != nil {
				rt.Fatal(err)
			}
			if name == record.AttemptsFile {
				data = data[:len(data)/8]
			}
			for range rapid.IntRange(0, 6).Draw(rt, name) {
				data[rapid.IntRange(0, len(data)-1).Draw(rt, "at")] = rapid.Byte().Draw(rt, "byte")
			}
			if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
				rt.Fatal(err)
			}
		}
		h, err := record.OpenUnsealed(dir)
		if err != nil {
			return
		}
		r, err := WriteAll(dir, h)
		if err == nil && r.Verdict == analysis.Pass {
			rt.Fatal("a history of which most is missing passed")
		}
	})
}
