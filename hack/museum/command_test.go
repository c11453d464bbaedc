package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios/museum"
)

// aBug is a bug whose triggers are a timeline.
func aBug(t *testing.T) museum.Entry {
	t.Helper()
	e, err := museum.Find("k8s-134147") // seen in kube-proxy@v1.34.3/ipvs
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// inTree is a folder of its own with a program in the place of hitless, whose text is empty for none.
func inTree(t *testing.T, text string) {
	t.Helper()
	t.Chdir(t.TempDir())
	for _, dir := range []string{"bin", "docs/results/museum", "docs/results/museum-subjects", folders, pictures, recorded} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if text != "" {
		write(t, hitless, "#!/bin/sh\n"+text)
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o755)); err != nil {
		t.Fatal(err)
	}
}

func writeJSON(t *testing.T, file string, value any) {
	t.Helper()
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	write(t, file, string(data))
}

// printed is what a function writes to the standard output.
func printed(t *testing.T, do func()) string {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	stdout := os.Stdout
	os.Stdout = f
	defer func() { os.Stdout = stdout; f.Close() }()
	do()
	text, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The exit code tells an answer that is not the expected one from a wrong call, and from a run that cannot tell.
func TestExitCodes(t *testing.T) {
	e := aBug(t)
	of := func(t task, a museum.Answer) run.BugResult {
		b := resultOf(t, a)
		b.ProgramSha256 = "abc"
		return b
	}
	for name, c := range map[string]struct {
		args      []string
		bad, good museum.Answer
		missing   bool // the program is
		code      int
		want      string // in the error
	}{
		"as expected":       {[]string{"-seeds", "1"}, museum.Seen, museum.NotSeen, false, 0, ""},
		"not seen":          {[]string{"-seeds", "1"}, museum.NotSeen, museum.NotSeen, false, 1, "on 0 of 1 seeds"},
		"cannot tell":       {[]string{"-subjects", "kube-proxy@v1.37.1/ipvs"}, museum.CannotTell, museum.CannotTell, false, 3, "cannot tell in"},
		"no program":        {nil, "", "", true, 2, "make build"},
		"no number":         {[]string{"-seeds", "four"}, "", "", false, 2, "four"},
		"no seed":           {[]string{"-seeds", "0"}, "", "", false, 2, "from 1 to 100"},
		"an unknown flag":   {[]string{"-seed", "1"}, "", "", false, 2, "seed"},
		"a word":            {[]string{"all"}, "", "", false, 2, "no flag"},
		"an unknown bug":    {[]string{"-subset", "k8s-1"}, "", "", false, 2, "k8s-1"},
		"no subject of all": {[]string{"-subjects", "kube-proxy@none"}, "", "", false, 2, "none"},
	} {
		t.Run(name, func(t *testing.T) {
			text := `case "$*" in *-bad-1*) cat bad.json ;; *-good-1*) cat good.json ;; *) cat other.json ;; esac`
			if c.missing {
				text = ""
			}
			inTree(t, text)
			writeJSON(t, "bad.json", of(tasksOf(e, 1)[0], c.bad))
			writeJSON(t, "good.json", of(tasksOf(e, 1)[1], c.good))
			writeJSON(t, "other.json", of(task{e, other, museum.Specimen{Subject: "kube-proxy@v1.37.1/ipvs"}, 1}, c.bad))
			args := append([]string{"-subset", e.ID}, c.args...)
			if code, err := command(t.Context(), args); code != c.code || (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("exit code %d, want %d; %v, want %q", code, c.code, err, c.want)
			}
		})
	}
}

// Ctrl-C ends the call with one line that says what to do, and not with an error for each run.
func TestAnInterruptSaysWhatContinues(t *testing.T) {
	inTree(t, "kill -INT $PPID\nexec sleep 600\n")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var code int
	var err error
	out := printed(t, func() { code, err = command(ctx, []string{"-subset", aBug(t).ID}) })
	if code != 130 || err == nil || err.Error() != "interrupted; the same command continues" || strings.Contains(out, "of 8") {
		t.Errorf("exit code %d, %v:\n%s", code, err, out)
	}
}

// A search keeps the answers that tell what made them, and is said to have failed without the others.
func TestASearchDropsAnswersWithoutTheirOrigin(t *testing.T) {
	e := aBug(t)
	newer, older := task{e, other, museum.Specimen{Subject: "kube-proxy@v1.35.0/ipvs"}, 1}, task{e, other, museum.Specimen{Subject: "kube-proxy@v1.33.0/ipvs"}, 1}
	out := filepath.Join(folders, "bisect-"+e.ID)
	for name, c := range map[string]struct {
		host  string // of the older version
		keeps bool
	}{"told": {`{"started":"2026-11-30T12:00:00Z"}`, true}, "damaged": {`{"started"`, false}, "missing": {"", false}} {
		t.Run(name, func(t *testing.T) {
			inTree(t, "mkdir -p "+out+"\ncp -r made/* "+out+"\ncat affected.json\n")
			write(t, "made/v1.35.0/"+record.HostFile, `{"started":"2026-11-30T11:00:00Z"}`)
			if c.host != "" {
				write(t, "made/v1.33.0/"+record.HostFile, c.host)
			}
			writeJSON(t, "affected.json", run.Affected{ID: e.ID, First: "v1.35.0", Last: "v1.35.0", Runs: []run.BugResult{resultOf(newer, museum.Seen), resultOf(older, museum.NotSeen)}})
			var err error
			said := printed(t, func() { err = options{entries: []museum.Entry{e}}.examineVersions(t.Context()) })
			f, openErr := open(filepath.Join("docs/results/museum-subjects", e.ID+".json"))
			if openErr != nil {
				t.Fatal(openErr)
			}
			if !f.has(newer, "") || f.has(older, "") != c.keeps || (err == nil) != c.keeps {
				t.Errorf("%+v; %v", f.Answers, err)
			}
			if strings.Contains(said, "failed") == c.keeps || strings.Contains(said, "seen from") != c.keeps {
				t.Errorf("it says %q", said)
			}
		})
	}
}

// A picture replaces the old one in one step: who has the old file open reads it to its end.
func TestAPictureIsReplacedInOneStep(t *testing.T) {
	e := aBug(t)
	inTree(t, "echo drawn\n")
	file, link := filepath.Join(pictures, e.ID+".txt"), "old"
	write(t, file, "old")
	if err := os.Link(file, link); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join("run", record.HistoryDir, record.TimelineFile), "steps")
	if err := draw(t.Context(), e, "run"); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{file: "drawn\n", link: "old"} {
		if text, err := os.ReadFile(name); err != nil || string(text) != want {
			t.Errorf("%s has %q, want %q: %v", name, text, want, err)
		}
	}
}
