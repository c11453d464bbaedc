//go:build unix

package main

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// Upstream's suite in which no spec ran is no failed spec: the script says why, and leaves no result. Its results are those of the specs that ran.
func TestUpstreamSuitesWithoutASpecAreNoResult(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the script needs programs of Linux")
	}
	const skipped, passed, failed = `<testcase name="[It] a" status="skipped" time="0">`, `<testcase name="[It] b" status="passed" time="1.5">`,
		`<testcase name="[It] c" status="failed" time="2">`
	for name, c := range map[string]struct {
		junit, status string
		code          int
		want, specs   string
	}{
		"all skipped": {skipped + "\n" + skipped, "0", 2, "no spec matches FOCUS=x", ""},
		"no spec":     {"<testsuites/>", "0", 2, "no spec matches FOCUS=x", ""},
		"dead suite":  {skipped, "1", 2, "ended before a spec ran", ""},
		"a pass":      {skipped + "\n" + passed, "0", 0, "", "passed\t1\tb\n"},
		"a failure":   {passed + "\n" + failed, "1", 1, "", "passed\t1\tb\nfailed\t2\tc\n"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			out := filepath.Join(dir, "out")
			text, err := os.ReadFile("../../hack/upstream-e2e.sh")
			if err != nil {
				t.Fatal(err)
			}
			played(t, filepath.Join(dir, "hack"), "upstream-e2e.sh", string(text))
			played(t, dir, "ginkgo", "#!/bin/sh\ncat >"+out+"/junit.xml <<'END'\n"+c.junit+"\nEND\nexit "+c.status+"\n")
			played(t, dir, "kubectl", "#!/bin/sh\nexit 0\n")
			played(t, filepath.Join(dir, "bin"), "hitless", `#!/bin/sh
case "$1 $2" in
"build e2e.test"*) printf 'e2e.test@v1\t/bin/true\nginkgo@v1\t`+dir+`/ginkgo\nkubectl@v1\t`+dir+`/kubectl\n' ;;
"lab up") echo 'the lab is up'; exec env --default-signal=INT sleep 600 ;; # shells start it without
"lab shell") shift 5; exec "$@" ;;
esac
`)
			code, said := script(t, filepath.Join(dir, "hack", "upstream-e2e.sh"), "FOCUS=x", "KERNEL=host", "OUT="+out)
			if code != c.code || !strings.Contains(said, c.want) {
				t.Errorf("exit code %d, want %d and %q:\n%s", code, c.code, c.want, said)
			}
			specs, err := os.ReadFile(filepath.Join(out, "specs.tsv"))
			if _, rows, _ := strings.Cut(string(specs), "\n"); rows != c.specs || (err == nil) != (c.specs != "") {
				t.Errorf("the specs are %q (%v)", specs, err)
			}
		})
	}
}
