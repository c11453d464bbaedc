package testfiles

import (
	"os"
	"testing"
)

// Damages are the ways to damage a file of a cache, by name. Each waits until the file has another ctime.
func Damages() map[string]func(t *testing.T, path string) {
	write := func(change func(data []byte) []byte) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			t.Helper()
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			for before := info.ModTime(); info.ModTime().Equal(before); { // the clock of a file system has coarse steps
				if err = os.WriteFile(path, change(data), 0o644); err == nil {
					info, err = os.Stat(path)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	return map[string]func(*testing.T, string){
		"one flipped byte": write(func(data []byte) []byte {
			changed := append([]byte{}, data...)
			changed[len(data)/2] ^= 1
			return changed
		}),
		"truncated": write(func(data []byte) []byte { return data[:len(data)/2] }),
		"empty":     write(func([]byte) []byte { return nil }),
		"deleted": func(t *testing.T, path string) {
			t.Helper()
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		},
		"replaced by a directory": func(t *testing.T, path string) {
			t.Helper()
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			if err := os.MkdirAll(path+"/inner", 0o755); err != nil {
				t.Fatal(err)
			}
		},
	}
}
