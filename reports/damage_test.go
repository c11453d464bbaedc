package reports

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
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
	pass := recordtest.PageLabs()["pass"]
	histories := []*record.History{o.Start(o.Lab()).Write(t), pass.Write(t), pass.Thinned(t, 0)}
	reports, passes := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		whole := rapid.SampledFrom(histories).Draw(rt, "history")
		cut := rapid.Bool().Draw(rt, "most attempts are missing")
		dir := damaged(rt, t.TempDir(), whole, cut)
		h, err := record.OpenUnsealed(dir)
		if err != nil {
			return
		}
		r, err := WriteAll(dir, h)
		if err != nil {
			return
		}
		if reports++; r.Verdict != analysis.Pass {
			return
		}
		if passes++; cut {
			rt.Fatal("a history of which most is missing passed")
		}
		if err := analysis.CheckAgreement(h, r); err != nil {
			rt.Fatal(err)
		}
	})
	if reports == 0 || passes == 0 || passes == reports {
		t.Errorf("%d damaged histories gave a report, %d of them a pass; want some of each", reports, passes)
	}
}

// damaged copies the files of a history with some damage, and an eighth of the attempts if they are cut.
func damaged(t *rapid.T, dir string, whole *record.History, cut bool) string {
	for _, name := range []string{record.RunFile, record.EventsFile, record.AttemptsFile} {
		data, err := os.ReadFile(filepath.Join(whole.Dir(), name))
		if err != nil {
			t.Fatal(err)
		}
		kinds := []func(*rapid.T, []byte) []byte{wrongByte, wrongDigit, lostLine, repeatedLine}
		if name == record.AttemptsFile {
			kinds = kinds[:1] // it has no lines
			if cut {
				data = data[:len(data)/8]
			}
		}
		for range rapid.SampledFrom([]int{0, 0, 0, 1, 2, 6}).Draw(t, "damages of "+name) {
			data = rapid.SampledFrom(kinds).Draw(t, "kind")(t, data)
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func wrongByte(t *rapid.T, data []byte) []byte {
	data[rapid.IntRange(0, len(data)-1).Draw(t, "at")] = rapid.Byte().Draw(t, "byte")
	return data
}

// wrongDigit replaces a digit, so that the text can still be read.
func wrongDigit(t *rapid.T, data []byte) []byte {
	var digits []int
	for i, b := range data {
		if '0' <= b && b <= '9' {
			digits = append(digits, i)
		}
	}
	if len(digits) > 0 {
		data[rapid.SampledFrom(digits).Draw(t, "at")] = '0' + rapid.ByteRange(0, 9).Draw(t, "digit")
	}
	return data
}

func lostLine(t *rapid.T, data []byte) []byte {
	lines, i := linesOf(t, data)
	return bytes.Join(slices.Delete(lines, i, i+1), nil)
}

func repeatedLine(t *rapid.T, data []byte) []byte {
	lines, i := linesOf(t, data)
	return bytes.Join(slices.Insert(lines, i, lines[i]), nil)
}

// linesOf returns the lines of a file, and draws one of them.
func linesOf(t *rapid.T, data []byte) ([][]byte, int) {
	lines := bytes.SplitAfter(data, []byte("\n"))
	return lines, rapid.IntRange(0, len(lines)-1).Draw(t, "line")
}
