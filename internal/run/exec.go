package run

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	"github.com/hitless/hitless/lab/subject"
	"github.com/hitless/hitless/lab/vm"
)

// addExec puts a proxy that a file describes into the guest: its program, its files and its tools, each with the shared
// libraries that it names. Nothing else but hitless stands there, not even a shell.
func addExec(img *vm.Image, e *subject.Exec) error {
	for _, name := range e.Pack.Tools {
		if err := addNamedTool(img, name); err != nil {
			return usagef("%s: %w", e.Pack.Source, err)
		}
	}
	files := append([]subject.File{{From: e.Pack.Program, To: e.Program}}, e.Pack.Files...)
	for _, f := range files {
		if img.Has(f.To) {
			return usagef("%s: %s stands in the guest already; give the file another place", e.Pack.Source, f.To)
		}
		if err := addFile(img, f.To, f.From, f.To == e.Program); err != nil {
			return usagef("%s: %w", e.Pack.Source, err)
		}
	}
	return nil
}

// addNamedTool puts a program of this machine into the guest, at /usr/sbin or /usr/bin as here.
func addNamedTool(img *vm.Image, name string) error {
	if name == "iptables" {
		return addIptables(img)
	}
	host, err := exec.LookPath(name)
	if err != nil {
		host, err = exec.LookPath(filepath.Join("/usr/sbin", name))
	}
	if err != nil {
		return fmt.Errorf("the tool %s is not installed here; install the package that brings it", name)
	}
	guest := "/usr/bin/" + name
	if path.Base(path.Dir(host)) == "sbin" {
		guest = "/usr/sbin/" + name
	}
	return addFile(img, guest, host, true)
}

// addFile puts a file into the guest: with its libraries when it is a program in machine code, and executable when it must
// be or is so here. A script whose interpreter is missing in the guest is an error now instead of a riddle there.
func addFile(img *vm.Image, guest, host string, program bool) error {
	info, err := os.Stat(host)
	if err != nil {
		return fmt.Errorf("packing for the guest: %w", err)
	}
	head, err := firstLine(host)
	if err != nil {
		return fmt.Errorf("packing for the guest: %w", err)
	}
	executable := program || info.Mode()&0o111 != 0
	interpreter, script := strings.CutPrefix(head, "#!")
	switch {
	case executable && strings.HasPrefix(head, "\x7fELF"):
		return img.AddProgram(guest, host)
	case executable && script:
		if words := strings.Fields(interpreter); len(words) == 0 || !img.Has(words[0]) {
			return fmt.Errorf("%s is a script for %q, which the guest does not have; name it in tools:, before what needs it", host, interpreter)
		}
	case program:
		return fmt.Errorf("%s is neither a program in machine code nor a script that begins with #!", host)
	}
	mode := os.FileMode(0o644) // not the host's own: two machines must pack the same guest
	if executable {
		mode = 0o755
	}
	img.Add(guest, host, mode)
	return nil
}

// firstLine returns the first line of a file, at most 128 bytes of it.
func firstLine(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	line, err := bufio.NewReader(io.LimitReader(f, 128)).ReadString('\n')
	if err != nil && err != io.EOF {
		return "", err
	}
	return strings.TrimSuffix(line, "\n"), nil
}
