package cache

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// writerEnv makes the test program a process that writes half of a file and waits for its end.
const writerEnv = "HITLESS_CACHE_TEST_WRITER"

func TestMain(m *testing.M) {
	if path := os.Getenv(writerEnv); path != "" {
		half := func(w io.Writer) error {
			_, err := w.Write([]byte("half"))
			fmt.Println("ready")
			_, _ = io.Copy(io.Discard, os.Stdin)
			return err
		}
		if filepath.Base(path) == "unfinished" {
			f, err := Create(filepath.Dir(path))
			if err == nil {
				err = half(f)
			}
			fmt.Println(err)
		} else {
			fmt.Println(Write(path, half))
		}
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func content(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

// Each read during concurrent writes returns a complete content.
func TestConcurrentWriters(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	const size = 1 << 16
	if err := WriteFile(path, bytes.Repeat([]byte("0"), size)); err != nil {
		t.Fatal(err)
	}
	var writers sync.WaitGroup
	for i := range 8 {
		writers.Go(func() {
			for range 20 {
				if err := WriteFile(path, bytes.Repeat([]byte{byte('1' + i)}, size)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { writers.Wait(); close(done) }()
	for over := false; !over; {
		select {
		case <-done:
			over = true
		default:
		}
		if got := content(t, path); len(got) != size || strings.Trim(got, got[:1]) != "" {
			t.Fatalf("a read returned %d bytes of several writers", len(got))
		}
	}
	if left := names(t, filepath.Dir(path)); len(left) != 1 {
		t.Errorf("left are %q", left)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o644 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

// killed runs a process that writes half of the file and kills it.
func killed(t *testing.T, path string) {
	t.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), writerEnv+"="+path)
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "ready\n" {
		t.Errorf("the writer said %q, %v", line, err)
	}
	if err := Prune(filepath.Dir(path), "lab-", Limit{}, time.Now()); filepath.Base(path) == "unfinished" && (err != nil || len(names(t, filepath.Dir(path))) != 1) {
		t.Errorf("the file of a living process was pruned: %v", err)
	}
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait() // killed
}

// A kill in the middle of a write keeps the old content.
func TestKillDuringWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := WriteFile(path, []byte("old")); err != nil {
		t.Fatal(err)
	}
	killed(t, path)
	if got := content(t, path); got != "old" {
		t.Errorf("the file has %q", got)
	}
}

// Prune removes what a killed process left, but not while it lives.
func TestKillDuringCreate(t *testing.T) {
	dir := t.TempDir()
	killed(t, filepath.Join(dir, "unfinished"))
	if left := names(t, dir); len(left) != 1 || !IsUnfinished(left[0]) {
		t.Errorf("the killed process left %q", left)
	}
	if err := Prune(dir, "lab-", Limit{}, time.Now()); err != nil {
		t.Fatal(err)
	}
	if left := names(t, dir); len(left) > 0 {
		t.Errorf("pruning left %q", left)
	}
}

// WriteFiles writes no file when one of them cannot be written.
func TestWriteFilesTogether(t *testing.T) {
	dir := t.TempDir()
	if err := WriteFiles(dir, []File{{"a", []byte("old")}, {"b", []byte("old")}}); err != nil {
		t.Fatal(err)
	}
	if err := WriteFiles(dir, []File{{"a", []byte("new")}, {filepath.Join("missing", "b"), nil}}); err == nil || !strings.Contains(err.Error(), "missing") {
		t.Errorf("a file in a missing directory gave %v", err)
	}
	if left := names(t, dir); len(left) != 2 || content(t, filepath.Join(dir, "a")) != "old" {
		t.Errorf("left are %q", left)
	}
}

func TestFinishAndDiscard(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made")
	for _, finish := range []bool{true, false} {
		f, err := Create(dir)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString("content"); err != nil {
			t.Fatal(err)
		}
		if finish {
			if err := f.Finish("name"); err != nil {
				t.Fatal(err)
			}
		}
		f.Discard()
	}
	if left := names(t, dir); len(left) != 1 || content(t, filepath.Join(dir, "name")) != "content" {
		t.Errorf("left are %q", left)
	}
}

func TestInstallDirKeepsTheFirst(t *testing.T) {
	parent := t.TempDir()
	final := filepath.Join(parent, "below", "final")
	for _, text := range []string{"first", "second"} {
		complete := filepath.Join(parent, text)
		if err := os.Mkdir(complete, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(complete, "file"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := installDir(complete, final); err != nil {
			t.Fatal(err)
		}
	}
	if got := content(t, filepath.Join(final, "file")); got != "first" {
		t.Errorf("the directory is that of the %s", got)
	}
	if left := names(t, parent); len(left) != 1 {
		t.Errorf("left are %q", left)
	}
}
