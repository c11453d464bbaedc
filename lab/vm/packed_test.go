package vm

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// Of many packed images the last ones stay, and those that are young or in use.
func TestOldImagesAreSweptAway(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	image := func(name string, age time.Duration) string {
		file := filepath.Join(dir, imagePrefix+name)
		if err := os.WriteFile(file, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(file, now.Add(-age), now.Add(-age)); err != nil {
			t.Fatal(err)
		}
		return file
	}
	var want []string
	for i := range keptImages + 3 { // three more than are kept, and young
		want = append(want, image(fmt.Sprintf("young-%02d", i), time.Duration(i)*time.Second))
	}
	held := image("held", 24*time.Hour)
	want = append(want, held)
	image("old", youngImage)
	f, err := holdImage(held)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := sweepImages(dir, now); err != nil {
		t.Fatal(err)
	}
	got, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("left are %q, want %q", got, want)
	}
}
