package reports

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/internal/cache"
	"github.com/hitless/hitless/record"
)

// Files of a run that other packages write.
const (
	OpenMetricsFile = "openmetrics.txt"    // samples with the times of the host's clock
	MinimizedFile   = "minimized.timeline" // the shortest timeline that fails as the run did
)

// UnfinishedDir has what a run writes until it has a report, in the folder of the run. A run that was killed leaves it.
const UnfinishedDir = "unfinished"

const (
	lockFile    = ".lock"     // locked while a run uses the folder; it names the run
	finishedDir = ".finished" // results of a complete run, before those of the earlier run are moved away
	installDir  = ".install"  // the same, after that
	replacedDir = ".replaced" // the earlier results, in one of the two
)

// results are the files and folders that a run writes. host.json marks a folder as one of a run, and comes first.
var results = []string{HostFile, record.HistoryDir, record.SealFile, record.CaptureFile, record.CountersFile, record.LoopFile, "logs", ReportFile, PageFile, JUnitFile, SummaryFile, OpenMetricsFile, MinimizedFile}

func isResult(name string) bool {
	stopped, _ := filepath.Match("at-*s", name) // the pattern is valid
	return stopped || slices.Contains(results, name)
}

// Claim is the folder of a run while a run uses it. The earlier run in it stays until the new one has a report.
type Claim struct {
	dir  string
	lock *cache.Lock
}

// BusyError is a folder that another run uses.
type BusyError struct{ Dir, Holder string }

// Error names the run.
func (e *BusyError) Error() string {
	return fmt.Sprintf("the folder %s is in use by another run (%s): wait until it has ended, or give another folder with --out", e.Dir, e.Holder)
}

// Lock locks a folder, which it makes, for a command line. It returns a BusyError at once when another run uses the folder, in this process
// or in another one.
func Lock(dir, command string) (*Claim, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("making the folder for the results: %w; give another with --out", err)
	}
	if err := cache.CheckWritable(dir); err != nil {
		return nil, fmt.Errorf("writing to %s: %w; give another folder with --out", dir, err)
	}
	path := filepath.Join(dir, lockFile)
	lock, err := cache.TryLock(path)
	if err != nil {
		return nil, fmt.Errorf("%w; give another folder with --out", err)
	}
	if lock == nil {
		holder, _ := os.ReadFile(path) // without it, the error only names less
		return nil, &BusyError{dir, firstLine(string(holder))}
	}
	text := fmt.Sprintf("process %d, since %s: %s\n", os.Getpid(), time.Now().Format(time.DateTime), command)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return nil, errors.Join(fmt.Errorf("locking %s: %w; give another folder with --out", dir, err), lock.Close())
	}
	return &Claim{dir, lock}, nil
}

// LockMany is Lock for files about several runs. The folder of one run is an error, because they would replace its own.
func LockMany(dir, command string) (*Claim, error) {
	c, err := Lock(dir, command)
	if err != nil {
		return nil, err
	}
	if _, err := os.Lstat(filepath.Join(dir, HostFile)); err == nil {
		err = fmt.Errorf("%s has the results of a run, which `%s` would overwrite; give another folder with --out", dir, command)
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// firstLine is the first line of the text of a lock.
func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	if line == "" {
		return "it has not written its name yet"
	}
	return line
}

// ClaimRun is Lock for the folder of one run, and completes the results of a run that was killed when it had its report. It removes
// nothing, since the new run can still fail before its start. A folder that holds names of results but no host.json is of another program,
// which is an error.
func ClaimRun(dir, command string) (*Claim, error) {
	if err := checkForeign(dir); err != nil {
		return nil, err
	}
	return installed(Lock(dir, command))
}

// ClaimComparison is ClaimRun for the folder of several runs, each in a folder below it.
func ClaimComparison(dir, command string) (*Claim, error) {
	return installed(LockMany(dir, command))
}

// installed completes the results of a run that was killed.
func installed(c *Claim, err error) (*Claim, error) {
	if err != nil {
		return nil, err
	}
	if err := c.install(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func checkForeign(dir string) error {
	for _, marks := range []string{HostFile, finishedDir, installDir} {
		if _, err := os.Lstat(filepath.Join(dir, marks)); err == nil {
			return nil
		}
	}
	for _, name := range results {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			return fmt.Errorf("%s holds a %s that is not of a run (there is no host.json), and a run would overwrite it; "+
				"give another folder with --out", dir, name)
		}
	}
	return nil
}

// Recover completes the results in a folder whose run was killed when it had its report. Other folders it does not touch.
func Recover(dir string) error {
	for _, name := range []string{finishedDir, installDir} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			c, err := ClaimRun(dir, "completing the results of a run that was killed")
			if err != nil {
				return err
			}
			return c.Close()
		}
	}
	return nil
}

// Close releases the folder. A nil Claim is released already.
func (c *Claim) Close() error {
	if c == nil {
		return nil
	}
	return c.lock.Close()
}

// Work is the folder into which the run writes.
func (c *Claim) Work() string { return filepath.Join(c.dir, UnfinishedDir) }

// Begin makes an empty folder for the run's files. It reports whether it removed what a run without an end had left.
func (c *Claim) Begin() (removed bool, err error) {
	entries, err := os.ReadDir(c.dir)
	for _, e := range entries {
		if e.Name() == UnfinishedDir || cache.IsUnfinished(e.Name()) {
			removed = removed || e.Name() == UnfinishedDir
			err = errors.Join(err, os.RemoveAll(filepath.Join(c.dir, e.Name())))
		}
	}
	if err = errors.Join(err, os.Mkdir(c.Work(), 0o755)); err != nil {
		return removed, fmt.Errorf("clearing what an earlier run left in %s: %w; give another folder with --out", c.dir, err)
	}
	return removed, nil
}

// hasRun reports whether the folder holds an earlier run that did not end early.
func (c *Claim) hasRun() bool {
	r, err := analysis.Read(filepath.Join(c.dir, ReportFile))
	return !errors.Is(err, fs.ErrNotExist) && (err != nil || r.Early == nil)
}

// Finish moves the files of the run to their final place, and removes those of the earlier run. Killed at any instant, one of the two is
// complete, here or after the next ClaimRun or Recover.
func (c *Claim) Finish() error {
	if err := cache.Replace(c.Work(), filepath.Join(c.dir, finishedDir)); err != nil {
		return fmt.Errorf("storing the results: %w", err)
	}
	return c.install()
}

// Settle is Finish for a run that ended early, or without a report: it never replaces an earlier run that did not. It returns the folder that the files are in.
func (c *Claim) Settle() (string, error) {
	if c.hasRun() {
		return c.Work(), nil
	}
	return c.dir, c.Finish()
}

// install continues Finish, from wherever it was killed.
func (c *Claim) install() error {
	finished, install := filepath.Join(c.dir, finishedDir), filepath.Join(c.dir, installDir)
	if _, err := os.Lstat(finished); err == nil {
		old := filepath.Join(finished, replacedDir)
		err := os.MkdirAll(old, 0o755)
		if err = errors.Join(err, moveAll(c.dir, old, replacedBy(finished))); err == nil {
			err = os.Rename(finished, install)
		}
		if err != nil {
			return fmt.Errorf("storing the results in %s: %w", c.dir, err)
		}
	}
	if _, err := os.Lstat(install); err != nil {
		return nil
	}
	err := moveAll(install, c.dir, func(name string) bool { return name != replacedDir && name != lockFile })
	if err == nil {
		err = os.RemoveAll(install)
	}
	if err != nil {
		return fmt.Errorf("storing the results in %s: %w", c.dir, err)
	}
	return nil
}

// replacedBy tells which names in the folder are replaced by new results. A run replaces all results of the earlier one.
func replacedBy(finished string) func(string) bool {
	_, err := os.Lstat(filepath.Join(finished, HostFile))
	run := err == nil
	return func(name string) bool {
		_, err := os.Lstat(filepath.Join(finished, name))
		return name != lockFile && (err == nil || run && isResult(name))
	}
}

// moveAll moves the named entries of a folder into another one, those of results in their order.
func moveAll(from, to string, named func(string) bool) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	slices.SortStableFunc(entries, func(a, b os.DirEntry) int { return rank(a.Name()) - rank(b.Name()) })
	for _, e := range entries {
		if named(e.Name()) {
			if err := os.Rename(filepath.Join(from, e.Name()), filepath.Join(to, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// rank is the position of a name in results, or behind them.
func rank(name string) int {
	if i := slices.Index(results, name); i >= 0 {
		return i
	}
	return len(results)
}
