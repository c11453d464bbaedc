//go:build linux

package hack_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hitless/hitless/hack/scripttest"
)

// comparing is a tree in which scripts of comparisons run. A comparison has a new number; with the file interrupt, that of the row restart is interrupted.
func comparing(t *testing.T, scripts string) scripttest.Tree {
	t.Helper()
	return scripttest.New(t, "rows.sh "+scripts, map[string]string{
		"hitless": `case "$1 $2" in
"results keep") mkdir -p "$(dirname "$4")"; if [ -e "$3/run" ]; then cp "$3/run" "$4"; else cp "$3/compare.json" "$4"; fi ;;
"results check") exit 1 ;;
"report "*) echo drawn ;;
compare*)
  echo "$2" >>compared
  out=$*; out=${out##* --out }
  if [ "$2" = restart ] && [ -e interrupt ]; then kill -INT 0; exit 130; fi
  mkdir -p "$out/kube-proxy-v1.25.3-iptables-seed-1"
  wc -l <compared | tee "$out/compare.json" >"$out/kube-proxy-v1.25.3-iptables-seed-1/run" ;;
esac
`,
		"go": `echo "$@" >>calls
case "$2 $3" in
"./hack/judge first") run=$5; [ ! -d "$run" ] || run=$run/run; cmp -s "$4" "$run" ;;
"./hack/judge valid") [ ! -e invalid ] ;;
esac
`})
}

// The picture of README.md is of the first run of its row, also after an interrupt between them. The row is run again only if its runs are gone.
func TestThePictureIsThatOfItsRow(t *testing.T) {
	for name, c := range map[string]struct {
		lose bool // the folders of the runs
		runs int  // of the row in the call after the interrupt
	}{"the runs are there": {false, 0}, "the runs are gone": {true, 1}} {
		s := comparing(t, "results.sh")
		s.Write("docs/results/picture/report.json", "older")
		s.Write("interrupt", "")
		if code, out := s.Run([]string{"FORCE=1"}, "results.sh"); code != 130 || s.Read("docs/results/picture/report.json") != "older" || !s.Has("docs/results/rollout.json") {
			t.Fatalf("%s: interrupted with exit code %d\n%s", name, code, out)
		}
		if err := os.Remove(filepath.Join(s.Dir, "interrupt")); err != nil {
			t.Fatal(err)
		}
		if c.lose {
			if err := os.RemoveAll(filepath.Join(s.Dir, "out")); err != nil {
				t.Fatal(err)
			}
		}
		begun := strings.Count(s.Read("compared"), "rollout")
		for call := range 2 {
			code, out := s.Run(nil, "results.sh")
			if picture, row := s.Read("docs/results/picture/report.json"), s.Read("docs/results/rollout.json"); code != 0 || picture != row || s.Read("docs/results/rollout.lanes.txt") != "drawn\n" {
				t.Errorf("%s, call %d: exit code %d, the picture is of %q, and the row of %q\n%s", name, call, code, picture, row, out)
			}
			if runs := strings.Count(s.Read("compared"), "rollout") - begun; runs != c.runs {
				t.Errorf("%s, call %d: the row ran %d times, want %d", name, call, runs, c.runs)
			}
		}
	}
}

// A row with an invalid run is no result of the scripts whose tests refuse it.
func TestInvalidRowsAreNoResults(t *testing.T) {
	for script, file := range map[string]string{"first-seed.sh": "first-seed/soak", "minors.sh": "minors/v1.25", "results.sh": "restart"} {
		s := comparing(t, script)
		s.Write("invalid", "")
		if code, out := s.Run(nil, script); code != 1 || s.Has("docs/results/"+file+".json") {
			t.Errorf("%s: exit code %d, and it kept an invalid row\n%s", script, code, out)
		}
		if err := os.Remove(filepath.Join(s.Dir, "invalid")); err != nil {
			t.Fatal(err)
		}
		if code, out := s.Run(nil, script); code != 0 || !s.Has("docs/results/"+file+".json") {
			t.Errorf("%s: exit code %d, and it kept no valid row\n%s", script, code, out)
		}
	}
}

// A report of conformance in which a spec is not judged is none of the subject.
func TestReportsOfConformanceAreWhole(t *testing.T) {
	for judge, want := range map[string]int{"true": 0, "exit 1": 1} {
		s := scripttest.New(t, "rows.sh conformance.sh", map[string]string{
			"hitless": `case "$1" in
conformance) out=$*; echo "state: passed" >"${out##* --out }/conformance.yaml" ;;
results) mkdir -p "$(dirname "$4")"; cp "$3/conformance.yaml" "$4" ;;
esac
`,
			"go": "case \"$2 $3 $4\" in \"./hack/judge whole out/results/conformance/bundled\") " + judge + " ;; *judge*) exit 2 ;; esac\n"})
		code, out := s.Run([]string{"SUBSET=bundled"}, "conformance.sh")
		if code != want || s.Has("docs/results/conformance/bundled/conformance.yaml") != (want == 0) {
			t.Errorf("%s: exit code %d\n%s", judge, code, out)
		}
	}
}

// A verification of an earlier call that does not confirm its run fails the script, as does one that cannot be judged.
func TestEarlierVerificationsMustConfirm(t *testing.T) {
	for name, c := range map[string]struct {
		judge string
		want  string // not verified
	}{
		"all confirm":      {"exit 0", ""},
		"one does not":     {"echo docs/results/verified/fault.json; exit 1", "not verified: fault\n"},
		"nothing is known": {"exit 1", "not verified: fault quiet\n"},
	} {
		s := scripttest.New(t, "rows.sh verify.sh", map[string]string{
			"hitless": "exit 2\n",
			"go":      "case \"$*\" in \"run ./hack/judge confirmed docs/results/verified/fault.json docs/results/verified/quiet.json\") " + c.judge + " ;; *judge*) exit 2 ;; esac\n"})
		for _, run := range []string{"fault", "quiet"} {
			s.Write("docs/results/verified/"+run+".json", "{}")
		}
		code, out := s.Run([]string{"SUBSET=quiet"}, "verify.sh")
		if (code == 0) != (c.want == "") || code > 1 || !strings.Contains(out, c.want) {
			t.Errorf("%s: exit code %d\n%s", name, code, out)
		}
	}
}
