package shard

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var runs = []string{"a-seed-1", "b-seed-1", "a-seed-2", "b-seed-2", "a-seed-3"}

// part writes a manifest into a new folder, changed by edit.
func part(t *testing.T, s string, edit func(*Manifest)) string {
	t.Helper()
	m := Manifest{manifestVersion, Comparison, "hitless compare rollout", s, "abc", runs}
	if edit != nil {
		edit(&m)
	}
	data, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, File), data, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// The shards of a call have each run once, in any order of the folders.
func TestShardsOfOneCallHaveEachRunOnce(t *testing.T) {
	parts, err := ReadAll(t.Context(), []string{part(t, "2/2", nil), part(t, "1/2", nil)})
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, p := range parts {
		all = append(all, p.Folders()...)
	}
	slices.Sort(all)
	if want := slices.Sorted(slices.Values(runs)); !slices.Equal(all, want) || parts[0].Shard != "1/2" {
		t.Errorf("%q of %+v, want %q", all, parts, want)
	}
}

func TestOtherShardsAreRefused(t *testing.T) {
	one := part(t, "1/2", nil)
	two := func(edit func(*Manifest)) string { return part(t, "2/2", edit) }
	tests := map[string]struct {
		dirs []string
		want string // in the error
	}{
		"missing":         {[]string{one}, "shard 2/2"},
		"twice":           {[]string{one, part(t, "1/2", nil), two(nil)}, "1/2"},
		"another call":    {[]string{one, two(func(m *Manifest) { m.Command = "hitless compare flap" })}, "hitless compare flap"},
		"another kind":    {[]string{one, two(func(m *Manifest) { m.Kind = Soak })}, Soak},
		"another number":  {[]string{one, part(t, "2/3", nil)}, "3"},
		"another program": {[]string{one, two(func(m *Manifest) { m.ProgramSha256 = "def" })}, "def"},
		"other runs":      {[]string{one, two(func(m *Manifest) { m.Runs = runs[1:] })}, "runs"},
		"interrupted":     {[]string{one, t.TempDir()}, File},
		"the whole":       {[]string{part(t, "", nil)}, "shard"},
		"a newer one":     {[]string{one, two(func(m *Manifest) { m.SchemaVersion = 9 })}, "9"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if parts, err := ReadAll(t.Context(), tt.dirs); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%+v, %v, want an error with %q", parts, err, tt.want)
			}
		})
	}
}
