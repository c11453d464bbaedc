package site

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/hitless/hitless/reports"
)

// Files that package site adds to the folder of a run.
const (
	OpenMetricsFile = reports.OpenMetricsFile
	MinimizedFile   = reports.MinimizedFile
)

// claim locks the folder of the run until release. Every error is a UsageError.
func (c *Call) claim(command string) (err error) {
	if c.folder, err = reports.ClaimRun(c.Out, command); err != nil {
		return UsageError{Reason: err}
	}
	return nil
}

// clear makes the folder for the run's files, and names what it removes.
func (c *Call) clear() error {
	removed, err := c.folder.Begin()
	if err != nil {
		return UsageError{Reason: err}
	}
	if removed {
		c.message(fmt.Sprintf("removed %s, which a run without an end had left", c.dir()))
	}
	return nil
}

// dir is the folder that the run writes into, until settle.
func (c *Call) dir() string { return c.folder.Work() }

// settle moves the files of the run to their final place. A run without a report never replaces an earlier one.
func (c *Call) settle(r *Result, runErr error) (*Result, error) {
	if r == nil {
		_ = os.Remove(c.dir()) // if it is empty
		return nil, runErr
	}
	var err error
	if r.Dir = c.Out; r.Report != nil || runErr == nil && r.Stopped == "" {
		err = c.folder.Finish()
	} else if r.Dir, err = c.folder.Settle(); r.Dir != c.Out {
		c.message(fmt.Sprintf("the earlier run in %s stays; what this one recorded is in %s until the next run", c.Out, r.Dir))
	}
	if r.Stopped != "" {
		r.Stopped = filepath.Join(r.Dir, filepath.Base(r.Stopped))
	}
	if err != nil && runErr == nil {
		return r, err
	}
	return r, runErr
}

// release ends the use of the folder.
func (c *Call) release() {
	if err := c.folder.Close(); err != nil {
		c.message(err.Error())
	}
	c.folder = nil
}
