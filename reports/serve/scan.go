package serve

import (
	"cmp"
	"crypto/ed25519"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/reports"
)

// deepest is the number of folder levels that are searched for runs. A comparison's runs are two levels deep.
const deepest = 5

// run is a row of the list of runs.
type run struct {
	Path     string // of its folder, below the served one
	Title    string // the scenario with its changed parameters and other settings
	Made     string // the control plane, the kernel and the program of the run
	Early    string // the heading of a run that ended early, else empty
	Subject  string // name and mode
	Version  string
	Seed     int64
	Verdict  analysis.Verdict
	Sentence string
	Attempts int
	Dropped  int
	Delayed  int
	WorstMs  float64
	Started  time.Time // zero without host.json
}

// Trusted reports whether the numbers of the run are a measurement: its verdict is pass or fail.
func (r run) Trusted() bool { return r.Verdict == analysis.Pass || r.Verdict == analysis.Fail }

// scanner finds the runs below a folder. It reads a run again only when its report, its seal or its history has changed.
type scanner struct {
	folder fs.FS
	key    ed25519.PublicKey // as for record.OpenSigned
	mu     sync.Mutex
	known  map[string]known
}

type known struct {
	state string // of its files
	run   run
	err   error
}

// look reads a run, unless it is known. It is called with s.mu held.
func (s *scanner) look(dir string) known {
	state := s.stateOf(dir)
	k, ok := s.known[dir]
	if !ok || k.state != state {
		k = known{state: state}
		k.run, k.err = s.read(dir)
	}
	return k
}

// damage is why the reports of a run must not be shown: its record was changed.
func (s *scanner) damage(dir string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.look(dir)
	if s.known == nil {
		s.known = map[string]known{}
	}
	s.known[dir] = k
	if record.IsDamaged(k.err) {
		return k.err
	}
	return nil
}

// scan lists the runs, the latest first, and the files that could not be read.
func (s *scanner) scan() (runs []run, broken []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := map[string]known{}
	_ = fs.WalkDir(s.folder, ".", func(name string, d fs.DirEntry, err error) error { // broken lists every error
		if err != nil {
			broken = append(broken, err.Error())
			return nil
		}
		if d.IsDir() {
			if name != "." && (strings.HasPrefix(d.Name(), ".") || strings.Count(name, "/") >= deepest || d.Name() == record.HistoryDir || d.Name() == reports.UnfinishedDir || d.Name() == "logs") {
				return fs.SkipDir
			}
			return nil
		}
		if d.Name() != reports.ReportFile || !d.Type().IsRegular() {
			return nil
		}
		k := s.look(path.Dir(name))
		seen[path.Dir(name)] = k
		if k.err != nil {
			broken = append(broken, k.err.Error())
			return nil
		}
		runs = append(runs, k.run)
		return nil
	})
	s.known = seen
	slices.SortStableFunc(runs, func(a, b run) int {
		return cmp.Or(b.Started.Compare(a.Started), strings.Compare(a.Path, b.Path))
	})
	return runs, broken
}

func (s *scanner) read(dir string) (run, error) {
	folder, err := fs.Sub(s.folder, dir)
	if err != nil {
		return run{}, err
	}
	r, h, err := reports.ReadSealed(folder, dir, s.key)
	if err != nil {
		return run{}, err
	}
	started, err := reports.StartedAt(folder)
	if err != nil {
		return run{}, err
	}
	early := ""
	if r.Early != nil {
		early = r.Heading()
	}
	return run{Path: dir, Title: analysis.SettingsOf(r.Run.Scenario, h.Run.Command), Made: madeText(r.Run), Early: early, Subject: strings.TrimSpace(r.Subject.Name + " " + r.Subject.Mode),
		Version: r.Subject.Version, Seed: r.Run.Seed, Verdict: r.Verdict, Sentence: r.Sentence(), Attempts: r.Totals.Attempts,
		Dropped: r.Totals.Dropped, Delayed: r.Totals.Delayed, WorstMs: r.WorstGapMs(), Started: started}, nil
}

// madeText says how a run was made. Runs with equal texts and titles are alike.
func madeText(r analysis.ReportRun) string {
	parts := []string{"control plane " + cmp.Or(r.ControlPlane, "not recorded"), "kernel " + cmp.Or(r.Kernel.String(), "not recorded"),
		"program " + cmp.Or(fmt.Sprintf("%.12s", r.ProgramSha256), "not recorded")}
	if r.Programs != "" {
		parts = append(parts, r.Programs+" programs")
	}
	if r.Tools != "" {
		parts = append(parts, "tools "+r.Tools)
	}
	return strings.Join(parts, ", ")
}

// has reports whether the run has each word of a search, in whatever it shows.
func (r run) has(words []string) bool {
	text := strings.ToLower(strings.Join([]string{r.Path, r.Title, r.Made, r.Subject, r.Version, string(r.Verdict), r.Early, fmt.Sprintf("seed %d", r.Seed)}, " "))
	return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) })
}

// stateOf tells whether the files of a run have changed: by their sizes and times.
func (s *scanner) stateOf(dir string) string {
	names := []string{reports.ReportFile, record.SealFile}
	entries, _ := fs.ReadDir(s.folder, path.Join(dir, record.HistoryDir)) // a missing history is told by ReadSealed
	for _, e := range entries {
		names = append(names, path.Join(record.HistoryDir, e.Name()))
	}
	var b strings.Builder
	for _, name := range names {
		if info, err := fs.Lstat(s.folder, path.Join(dir, name)); err == nil {
			fmt.Fprintln(&b, name, info.Size(), info.ModTime().UnixNano())
		}
	}
	return b.String()
}
