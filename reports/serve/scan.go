package serve

import (
	"cmp"
	"encoding/json"
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
	Title    string // the scenario with its changed parameters
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

// scanner finds the runs below a folder. It reads a report again only after a change of the file.
type scanner struct {
	folder fs.FS
	mu     sync.Mutex
	known  map[string]known
}

type known struct {
	size    int64
	changed time.Time
	run     run
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
			if name != "." && (strings.HasPrefix(d.Name(), ".") || strings.Count(name, "/") >= deepest || d.Name() == "history" || d.Name() == "logs") {
				return fs.SkipDir
			}
			return nil
		}
		if d.Name() != reports.ReportFile || !d.Type().IsRegular() {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			broken = append(broken, err.Error())
			return nil
		}
		k, ok := s.known[name]
		if !ok || k.size != info.Size() || !k.changed.Equal(info.ModTime()) {
			k = known{size: info.Size(), changed: info.ModTime()}
			if k.run, err = s.read(path.Dir(name)); err != nil {
				broken = append(broken, err.Error())
				return nil
			}
		}
		seen[name] = k
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
	file := path.Join(dir, reports.ReportFile)
	data, err := fs.ReadFile(s.folder, file)
	if err != nil {
		return run{}, err
	}
	r, err := analysis.Parse(data, file)
	if err != nil {
		return run{}, err
	}
	folder, err := fs.Sub(s.folder, dir)
	if err != nil {
		return run{}, err
	}
	started, err := reports.StartedAt(folder)
	if err != nil {
		return run{}, err
	}
	return run{Path: dir, Title: analysis.TitleOf(r.Run.Scenario, s.command(dir)), Subject: strings.TrimSpace(r.Subject.Name + " " + r.Subject.Mode),
		Version: r.Subject.Version, Seed: r.Run.Seed, Verdict: r.Verdict, Sentence: r.Sentence(), Attempts: r.Totals.Attempts,
		Dropped: r.Totals.Dropped, Delayed: r.Totals.Delayed, WorstMs: r.WorstGapMs(), Started: started}, nil
}

// command is the command that repeats the run; empty without a history.
func (s *scanner) command(dir string) string {
	data, err := fs.ReadFile(s.folder, path.Join(dir, "history", record.RunFile))
	var head record.Run
	if err != nil || json.Unmarshal(data, &head) != nil {
		return ""
	}
	return head.Command
}
