package compile

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hitless/hitless/internal/cache"
)

// Service compiles for a guest, on the host.
type Service struct {
	// Compiler is the command of clang, without arguments, and Digest identifies its files.
	Compiler []string
	Digest   string
	// Sources are the files that were packed for each node, by their paths in the guest.
	Sources map[string]string
	// Dir is the directory of objects in the cache.
	Dir string

	made, kept int
}

// objectSuffix ends the names of objects in the cache.
const objectSuffix = ".o"

// timeout bounds one call of the compiler.
const timeout = 5 * time.Minute

// Counts are how many programs have been compiled, and how many were in the cache.
func (s *Service) Counts() (compiled, cached int) { return s.made, s.kept }

// Answer answers a request of Main. The errors are those of the host; those of a compilation are in the answer.
func (s *Service) Answer(ctx context.Context, request []byte) ([]byte, error) {
	r, err := ParseRequest(request)
	if err != nil {
		return nil, err
	}
	a, err := s.answer(ctx, r)
	if err != nil {
		return nil, err
	}
	return a.Marshal()
}

func (s *Service) answer(ctx context.Context, r Request) (Answer, error) {
	root, err := cache.NewTempDir("hitless-compile-")
	if err != nil {
		return Answer{}, err
	}
	defer root.Remove()
	if err := s.lay(root.Path, r.Files); err != nil {
		return Answer{}, fmt.Errorf("laying the sources of a BPF program: %w", err)
	}
	if !slices.Contains(r.Args, "-c") || slices.Contains(r.Args, "-E") {
		return s.run(ctx, root.Path, r.Args)
	}
	before, err := s.run(ctx, root.Path, append(slices.Clone(r.Args), "-E"))
	if err != nil || before.Exit != 0 {
		return before, err
	}
	file := filepath.Join(s.Dir, s.key(r.Args, before.Output)+objectSuffix)
	if object, err := readObject(file); err == nil {
		s.kept++
		return Answer{Output: object}, nil
	}
	a, err := s.run(ctx, root.Path, r.Args)
	if err != nil || a.Exit != 0 || a.Stderr != "" { // warnings are not kept
		return a, err
	}
	s.made++
	return a, writeObject(file, a.Output)
}

// lay writes the packed sources and those of a request below a root.
func (s *Service) lay(root string, files []File) error {
	for guest, host := range s.Sources {
		text, err := os.ReadFile(host)
		if err == nil {
			err = layFile(filepath.Join(root, guest), text)
		}
		if err != nil {
			return err
		}
	}
	for _, f := range files {
		if err := layFile(filepath.Join(root, f.Path), f.content); err != nil {
			return err
		}
	}
	return nil
}

func layFile(file string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o644)
}

// debugVersion is the version of DWARF. From version 5 on, objects have checksums of their sources, and would differ by comments, which are
// not in the key.
const debugVersion = "-fdebug-default-version=4"

// run runs the compiler with paths below the root. What it writes has the paths of the guest.
func (s *Service) run(ctx context.Context, root string, args []string) (Answer, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("the compiler did not end within %s", timeout))
	defer cancel()
	words := append(slices.Clone(s.Compiler), "-ffile-prefix-map="+root+"=", "-fdebug-compilation-dir=/", debugVersion)
	for _, a := range args {
		if dir, is := strings.CutPrefix(a, "-I"); is {
			a = "-I" + root + dir
		} else if strings.HasPrefix(a, "/") {
			a = root + a
		}
		words = append(words, a)
	}
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = root, []string{"PATH=/usr/bin:/bin", "LC_ALL=C"}, time.Second
	var out, msg bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &msg
	err := cmd.Run()
	if ctx.Err() != nil {
		return Answer{}, context.Cause(ctx)
	}
	a := Answer{Output: out.Bytes(), Stderr: strings.ReplaceAll(msg.String(), root, "")}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		a.Exit = max(exit.ExitCode(), 1)
		return a, nil
	}
	if err != nil {
		return Answer{}, fmt.Errorf("running the compiler: %w", err)
	}
	a.Output = bytes.ReplaceAll(a.Output, []byte(root), nil) // of the lines that -E writes; objects have no such path
	return a, nil
}

// key identifies an object by the compiler, the flags and the preprocessed source. Directories are in the source's marks of lines.
func (s *Service) key(args []string, preprocessed []byte) string {
	h := sha256.New()
	fmt.Fprintf(h, "2\n%s\n", s.Digest)
	for _, a := range args {
		if !strings.HasPrefix(a, "-I") {
			fmt.Fprintf(h, "%q\n", a)
		}
	}
	h.Write(preprocessed)
	return hex.EncodeToString(h.Sum(nil))
}

// An object in the cache has its own SHA-256 before it.

func writeObject(file string, object []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("keeping a BPF program: %w", err)
	}
	sum := sha256.Sum256(object)
	return cache.WriteFile(file, append(sum[:], object...))
}

// readObject reads an intact object. A missing one is fs.ErrNotExist, a damaged one a *cache.Damage.
func readObject(file string) ([]byte, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if len(data) < sha256.Size {
		return nil, &cache.Damage{Entry: file, File: cache.Itself, Expected: "a SHA-256 and an object", Found: fmt.Sprintf("%d bytes", len(data))}
	}
	sum := sha256.Sum256(data[sha256.Size:])
	if !bytes.Equal(sum[:], data[:sha256.Size]) {
		return nil, &cache.Damage{Entry: file, File: cache.Itself, Expected: hex.EncodeToString(data[:sha256.Size]), Found: hex.EncodeToString(sum[:])}
	}
	return data[sha256.Size:], nil
}

// Entries returns the objects of a cache for a full check.
func Entries(dir string) ([]cache.Entry, error) {
	return cache.List(dir, func(path string) *cache.Entry {
		name := strings.TrimSuffix(filepath.Base(path), objectSuffix)
		if sum, err := hex.DecodeString(name); err != nil || len(sum) != sha256.Size {
			return cache.Foreign(path)
		}
		return &cache.Entry{Path: path, Check: func(_ context.Context, read func(int)) error {
			object, err := readObject(path)
			if err == nil {
				read(len(object) + sha256.Size)
			}
			if errors.Is(err, fs.ErrNotExist) {
				return nil // another process has removed it
			}
			return err
		}}
	})
}
