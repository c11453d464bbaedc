// Package compile compiles BPF programs for a guest. A program of the guest that stands for clang passes its arguments and the files that
// the proxy has written to the host, which compiles them with the guest's own compiler. The guest stands still meanwhile. The host keeps the
// objects in its cache, by the preprocessed source and the flags.
//
// The package does not read or change what it compiles.
package compile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Request is a call of the compiler.
type Request struct {
	Args  []string
	Files []File // that differ from those which were packed for the guest
}

// File is a file by its path in the guest.
type File struct {
	Path    string
	Size    int
	content []byte
}

// Answer is what the compiler has written, and its exit status.
type Answer struct {
	Exit   int
	Stderr string
	Output []byte `json:"-"` // of standard output
}

// Marshal writes a request: a line of JSON, and the files' contents.
func (r Request) Marshal() ([]byte, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	b := append(text, '\n')
	for _, f := range r.Files {
		b = append(b, f.content...)
	}
	return b, nil
}

// ParseRequest reads what Marshal has written. It refuses arguments by which a compiler would read or write other files.
func ParseRequest(data []byte) (Request, error) {
	var r Request
	head, rest, found := bytes.Cut(data, []byte("\n"))
	if !found {
		return r, errors.New("a request for the compiler has no end of its head")
	}
	if err := json.Unmarshal(head, &r); err != nil {
		return r, fmt.Errorf("reading a request for the compiler: %w", err)
	}
	for i := range r.Files {
		f := &r.Files[i]
		if !path.IsAbs(f.Path) || path.Clean(f.Path) != f.Path || f.Size < 0 || f.Size > len(rest) {
			return r, fmt.Errorf("a request for the compiler has the file %q of %d bytes", f.Path, f.Size)
		}
		f.content, rest = rest[:f.Size], rest[f.Size:]
	}
	return r, checkArgs(r.Args)
}

// allowed are the arguments that compile a file to standard output. Directories and files are in the guest.
var allowed = regexp.MustCompile(`^(-I/[^\x00]*|-D[A-Za-z_][^\x00]*|-O[0-3s]|-g|-c|-E|-std=[a-z0-9]+|--target=bpf|-target|bpf|-nostdinc|-mcpu=v[1-4]|-W[a-z0-9=-]+|-f[a-z-]+(?:=[A-Za-z0-9_]+)?|-o|-|/[^\x00]*\.c|--version)$`)

// checkArgs returns an error for an argument that is not known to be harmless for the host.
func checkArgs(args []string) error {
	for i, a := range args {
		bad := !allowed.MatchString(a) || strings.HasPrefix(a, "-fplugin") || strings.HasPrefix(a, "-fpass-plugin") || strings.HasPrefix(a, "-Wp")
		if bad || a == "-o" && (i+1 == len(args) || args[i+1] != "-") {
			return fmt.Errorf("the argument %q is refused: a guest's compiler may compile one C file to standard output", a)
		}
	}
	return nil
}

// directories are the include directories and that of the source.
func (r Request) directories() (dirs []string) {
	for _, a := range r.Args {
		dir, is := strings.CutPrefix(a, "-I")
		if !is && strings.HasPrefix(a, "/") {
			dir, is = path.Dir(a), true
		}
		if is && !slices.Contains(dirs, path.Clean(dir)) {
			dirs = append(dirs, path.Clean(dir))
		}
	}
	return dirs
}

// Marshal writes an answer as a request is written.
func (a Answer) Marshal() ([]byte, error) {
	text, err := json.Marshal(a)
	return append(append(text, '\n'), a.Output...), err
}

// ParseAnswer reads what Marshal has written.
func ParseAnswer(data []byte) (a Answer, err error) {
	head, rest, found := bytes.Cut(data, []byte("\n"))
	if !found {
		return a, errors.New("an answer of the compiler has no end of its head")
	}
	a.Output = rest
	return a, json.Unmarshal(head, &a)
}
