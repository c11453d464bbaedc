package site

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hitless/hitless/internal/guest"
	"github.com/hitless/hitless/internal/input"
	"github.com/hitless/hitless/lab/subject"
	"github.com/hitless/hitless/lab/topology"
)

// addExec adds a proxy that a file describes to the image: its program, files and tools. The image has nothing else but hitless, not even
// a shell.
func (p *packer) addExec(ctx context.Context, e *subject.Exec) error {
	for _, name := range e.Pack.Tools {
		if err := p.addNamedTool(ctx, name); err != nil {
			return Usagef("%s: %w", e.Pack.Source, err)
		}
	}
	files := slices.Concat(e.Pack.Files, e.Pack.Objects)
	if e.Recipe == nil {
		files = append([]subject.File{{From: e.Pack.Program, To: e.Program}}, files...)
	}
	for _, f := range files {
		if topology.Private(f.To) { // each node boots with a copy
			f.To = path.Join(guest.NodeFiles, f.To)
		}
		if p.img.Has(f.To) {
			return Usagef("%s: %s exists in the guest already; give the file another path", e.Pack.Source, f.To)
		}
		if err := p.addFile(f.To, f.From, f.To == e.Program); err != nil {
			return Usagef("%s: %w", e.Pack.Source, err)
		}
	}
	return nil
}

// addNamedTool adds one of the guest's tools, or a program of this machine, in /usr/sbin or /usr/bin as on this machine.
func (p *packer) addNamedTool(ctx context.Context, name string) error {
	set, err := p.tools(ctx)
	if err != nil {
		return err
	}
	if name == "iptables" {
		return p.addIptables(ctx)
	}
	if _, has := set.Program(name); has {
		return p.addTools(ctx, name)
	}
	host, err := exec.LookPath(name)
	if err != nil {
		host, err = exec.LookPath(filepath.Join("/usr/sbin", name))
	}
	if err != nil {
		return fmt.Errorf("the tool %s is neither one of the guest's tools nor installed here; install its package", name)
	}
	guest := "/usr/bin/" + name
	if path.Base(path.Dir(host)) == "sbin" {
		guest = "/usr/sbin/" + name
	}
	return p.addFile(guest, host, true)
}

// addFile adds a file of this machine. program makes it executable. A script needs its interpreter in the image.
func (p *packer) addFile(guest, host string, program bool) error {
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
		return p.addHostProgram(guest, host)
	case executable && script:
		if words := strings.Fields(interpreter); len(words) == 0 || !p.img.Has(words[0]) {
			return fmt.Errorf("%s is a script for %q, which the guest does not have; name it in tools:, before what needs it", host, interpreter)
		}
	case program:
		return fmt.Errorf("%s is neither a program in machine code nor a script that begins with #!", host)
	}
	mode := os.FileMode(0o644) // the same on all machines
	if executable {
		mode = 0o755
	}
	p.img.Add(guest, host, mode)
	return nil
}

// firstLine returns the first line of a file, at most 128 bytes of it.
func firstLine(file string) (string, error) {
	f, err := input.Open(file, input.ProgramBytes)
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
