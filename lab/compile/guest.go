package compile

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// maxFiles bounds the files of a request.
const maxFiles = 10_000

// Main is the program that stands for clang in a guest: call passes the arguments and the files to the host. packed is the folder with the
// files as they were packed for the node, below which a path is the same. It returns the exit status.
func Main(args []string, packed string, call func([]byte) ([]byte, error), out, errors io.Writer) int {
	a, err := ask(args, packed, call)
	if err != nil {
		fmt.Fprintln(errors, "hitless: compiling on the host:", err)
		return 1
	}
	fmt.Fprint(errors, a.Stderr)
	if _, err := out.Write(a.Output); err != nil {
		fmt.Fprintln(errors, "hitless: writing what the host has compiled:", err)
		return 1
	}
	return a.Exit
}

func ask(args []string, packed string, call func([]byte) ([]byte, error)) (Answer, error) {
	r := Request{Args: args}
	for _, dir := range r.directories() {
		if err := r.addChanged(dir, packed); err != nil {
			return Answer{}, fmt.Errorf("reading the files of %s: %w", dir, err)
		}
	}
	text, err := r.Marshal()
	if err != nil {
		return Answer{}, err
	}
	answer, err := call(text)
	if err != nil {
		return Answer{}, err
	}
	return ParseAnswer(answer)
}

// addChanged adds the files of a directory that differ from the packed ones. A directory that does not exist has none.
func (r *Request) addChanged(dir, packed string) error {
	return filepath.WalkDir(dir, func(file string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil && file == dir && os.IsNotExist(err):
			return fs.SkipAll
		case err != nil:
			return err
		case !entry.Type().IsRegular() || !source(file) || r.has(file):
			return nil
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if before, err := os.ReadFile(filepath.Join(packed, file)); err == nil && bytes.Equal(before, text) {
			return nil
		}
		if len(r.Files) == maxFiles {
			return fmt.Errorf("more than %d files", maxFiles)
		}
		r.Files = append(r.Files, File{file, len(text), text})
		return nil
	})
}

func source(file string) bool {
	ext := filepath.Ext(file)
	return ext == ".c" || ext == ".h"
}

func (r *Request) has(file string) bool {
	for _, f := range r.Files {
		if f.Path == file {
			return true
		}
	}
	return false
}
