package shard

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/hitless/hitless/internal/cache"
	"github.com/hitless/hitless/internal/input"
	"github.com/hitless/hitless/internal/version"
)

// File is the name of a manifest.
const File = "shard.json"

// The kinds of calls with shards.
const (
	Comparison = "comparison"
	Museum     = "museum"
	Soak       = "soak"
)

// Manifest is shard.json: the part of a call whose runs a folder holds. It is written when all of them have ended.
type Manifest struct {
	SchemaVersion int      `json:"schemaVersion"`
	Kind          string   `json:"kind"`
	Command       string   `json:"command"`       // the whole call, without its folder
	Shard         string   `json:"shard"`         // I/N
	ProgramSha256 string   `json:"programSha256"` // of hitless
	Runs          []string `json:"runs"`          // folders of the runs of the whole call; the shards take turns
}

// manifestVersion is the version of shard.json.
const manifestVersion = 1

// Write writes the manifest of a call into a folder.
func Write(ctx context.Context, dir, kind, command string, s Shard, runs []string) error {
	program, err := version.OwnSum(ctx)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(Manifest{manifestVersion, kind, command, s.String(), program, runs}); err != nil {
		return fmt.Errorf("writing %s: %w", File, err)
	}
	return cache.WriteFile(filepath.Join(dir, File), b.Bytes())
}

// Is reports whether a folder holds a shard with a manifest.
func Is(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, File))
	return err == nil
}

// Part is a folder with its manifest.
type Part struct {
	Dir string
	Manifest
	of Shard
}

// Folders returns the runs that the part has, as the manifest names them.
func (p Part) Folders() (own []string) {
	for i, name := range p.Runs {
		if p.of.Has(i) {
			own = append(own, name)
		}
	}
	return own
}

// Home is the part that has the i-th run, counted from 0. The parts are all of one call, in order.
func Home(parts []Part, i int) Part { return parts[i%len(parts)] }

// ReadAll reads the manifests of all shards of one call, and returns them in order. Shards of different calls or programs, a missing one
// and one that is given twice are errors.
func ReadAll(ctx context.Context, dirs []string) ([]Part, error) {
	var parts []Part
	for _, dir := range dirs {
		p, err := read(ctx, dir)
		if err != nil {
			return nil, err
		}
		parts = append(parts, p)
	}
	first := parts[0]
	held := map[int]string{}
	for _, p := range parts {
		if err := first.sameCall(p); err != nil {
			return nil, err
		}
		if other, twice := held[p.of.Part]; twice {
			return nil, fmt.Errorf("%s and %s both hold shard %s; give each once", other, p.Dir, p.Shard)
		}
		held[p.of.Part] = p.Dir
	}
	for i := 1; i <= first.of.Of; i++ {
		if _, has := held[i]; !has {
			return nil, fmt.Errorf("shard %d/%d of `%s` is missing; run it with --shard %d/%d and give its folder too", i, first.of.Of, first.Command, i, first.of.Of)
		}
	}
	slices.SortFunc(parts, func(a, b Part) int { return cmp.Compare(a.of.Part, b.of.Part) })
	return parts, nil
}

func read(ctx context.Context, dir string) (Part, error) {
	path := filepath.Join(dir, File)
	data, err := input.Read(ctx, path, input.TextBytes)
	if _, statErr := os.Stat(dir); errors.Is(statErr, fs.ErrNotExist) {
		return Part{}, fmt.Errorf("reading a shard: there is no folder %s; give the folder that its --out named", dir)
	}
	if err != nil {
		return Part{}, fmt.Errorf("reading a shard: %w; a shard that was interrupted has no %s: run it again", err, File)
	}
	p := Part{Dir: dir}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&p.Manifest); err != nil {
		return p, fmt.Errorf("reading %s: %w; run the shard again", path, err)
	}
	if p.SchemaVersion != manifestVersion {
		return p, fmt.Errorf("reading %s: its version is %d, and this hitless knows version %d; use the hitless that made it", path, p.SchemaVersion, manifestVersion)
	}
	if p.of, err = Parse(p.Shard); err == nil && p.of.Of == 0 {
		err = fmt.Errorf("the field shard is empty")
	}
	if err != nil {
		return p, fmt.Errorf("reading %s: %w", path, err)
	}
	return p, nil
}

// sameCall is the error of a part that is not of the call of p.
func (p Part) sameCall(other Part) error {
	for _, is := range []struct{ what, one, two string }{
		{"call", p.Kind + ": " + p.Command, other.Kind + ": " + other.Command},
		{"number of shards", fmt.Sprint(p.of.Of), fmt.Sprint(other.of.Of)},
		{"program", p.ProgramSha256, other.ProgramSha256},
		{"list of runs", fmt.Sprint(p.Runs), fmt.Sprint(other.Runs)},
	} {
		if is.one != is.two {
			return fmt.Errorf("%s and %s have different values of %s: %s and %s; only shards of one call and one program can be merged", p.Dir, other.Dir, is.what, is.one, is.two)
		}
	}
	return nil
}
