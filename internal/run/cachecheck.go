package run

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hitless/hitless/internal/cache"
	"github.com/hitless/hitless/internal/site"
	"github.com/hitless/hitless/internal/version"
	"github.com/hitless/hitless/lab/build"
	"github.com/hitless/hitless/lab/compile"
	"github.com/hitless/hitless/lab/tools"
	"github.com/hitless/hitless/lab/vm"
)

// CheckedEntry is the result of a full check of one entry of the cache.
type CheckedEntry struct {
	cache.Entry
	Name    string // path in the cache
	Bytes   int64
	Removed bool
}

// CacheCheck is a full check of a cache.
type CacheCheck struct {
	Dir      string
	Repair   bool                    // removes damaged entries and what is left over
	Entry    func(CheckedEntry)      // gets each entry
	Progress func(done, total int64) // gets the bytes so far, at most once in Interval
	Interval time.Duration
}

// CheckCache reads every entry of the cache and returns the number of damaged ones that stay. The errors are those of listing and
// removing; after the end of ctx it is the cause of ctx.
func (c CacheCheck) CheckCache(ctx context.Context) (damaged int, err error) {
	entries, err := c.entries()
	if err != nil {
		return 0, err
	}
	var done, total int64
	for _, e := range entries {
		total += e.Bytes
	}
	reported := time.Now()
	var failed []error
	for _, e := range entries {
		err := e.Inspect(ctx, func(n int) {
			if done += int64(n); time.Since(reported) >= c.Interval {
				reported = time.Now()
				c.Progress(done, total)
			}
		})
		if err != nil {
			return damaged, err
		}
		if c.Repair {
			e.Removed, err = e.Remove(ctx)
			failed = append(failed, err)
		}
		if e.State == cache.Damaged && !e.Removed {
			damaged++
		}
		c.Entry(e)
	}
	return damaged, errors.Join(failed...)
}

// entries lists the cache in the order of names.
func (c CacheCheck) entries() ([]CheckedEntry, error) {
	if _, err := os.ReadDir(c.Dir); errors.Is(err, os.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	machines, err := vm.Entries(c.Dir)
	if err != nil {
		return nil, err
	}
	programs, err := build.Entries(filepath.Join(c.Dir, "build"))
	if err != nil {
		return nil, err
	}
	copies, err := version.Entries(site.ProgramDir(c.Dir))
	if err != nil {
		return nil, err
	}
	packed, err := tools.Entries(site.ToolsDir(c.Dir))
	if err != nil {
		return nil, err
	}
	objects, err := compile.Entries(site.ObjectsDir(c.Dir))
	if err != nil {
		return nil, err
	}
	others, err := cache.List(c.Dir, func(path string) *cache.Entry {
		if info, err := os.Stat(path); err == nil && info.IsDir() && slices.Contains(cacheDirs, filepath.Base(path)) {
			return nil
		}
		return cache.Foreign(path)
	})
	var all []CheckedEntry
	for _, e := range slices.Concat(machines, programs, packed, objects, copies, others) {
		name, relErr := filepath.Rel(c.Dir, e.Path)
		all, err = append(all, CheckedEntry{Entry: e, Name: name, Bytes: cache.Size(e.Path)}), errors.Join(err, relErr)
	}
	slices.SortFunc(all, func(a, b CheckedEntry) int { return strings.Compare(a.Name, b.Name) })
	return all, err
}

// cacheDirs are the directories of the cache whose entries are listed.
var cacheDirs = []string{"kernel", "initramfs", "snapshots", "build", "tools", "program", "objects"}
