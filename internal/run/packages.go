package run

import (
	"context"
	_ "embed" // for the list of packages
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hitless/hitless/internal/site"
	"github.com/hitless/hitless/lab/vm"
)

//go:embed packages.txt
var packagesText string

// requirement is a program that hitless needs of this machine, and its package on Debian and Ubuntu.
type requirement struct{ group, program, packageName, purpose string }

// requirements returns the programs of groups in the order of the list.
func requirements(groups ...string) (all []requirement) {
	for line := range strings.Lines(packagesText) {
		if f := strings.Fields(line); len(f) > 3 && slices.Contains(groups, f[0]) {
			all = append(all, requirement{f[0], f[1], f[2], strings.Join(f[3:], " ")})
		}
	}
	return all
}

// requirementsOf returns the requirements with these programs.
func requirementsOf(programs ...string) []requirement {
	return slices.DeleteFunc(requirements("base", "lab"), func(r requirement) bool { return !slices.Contains(programs, r.program) })
}

// findProgram returns the path of a program in PATH or /usr/sbin, which is not in the PATH of all users; empty without it.
func findProgram(name string) string {
	for _, file := range []string{name, filepath.Join("/usr/sbin", name)} {
		if path, err := exec.LookPath(file); err == nil {
			return path
		}
	}
	return ""
}

func installed(program string) bool { return findProgram(program) != "" }

// installer installs the packages that a lab lacks.
type installer struct {
	has     func(program string) bool
	listed  func(context.Context) error // whether the package lists have the guest's kernel
	root    bool
	release string // file with the name of the distribution
	out     io.Writer
}

// Install installs what the lab lacks on this machine, as root on Debian and Ubuntu, and writes the commands. Elsewhere the error says
// what to install.
func Install(ctx context.Context, out io.Writer) error {
	if err := site.CheckPlatform(); err != nil {
		return err
	}
	return installer{has: installed, listed: kernelListed, root: os.Geteuid() == 0, release: "/etc/os-release", out: out}.install(ctx)
}

func kernelListed(ctx context.Context) error {
	_, err := vm.ListedKernel(ctx)
	return err
}

// lacking are the missing programs of a lab.
func (i installer) lacking() []requirement {
	return slices.DeleteFunc(requirements("lab"), func(r requirement) bool { return i.has(r.program) })
}

func (i installer) install(ctx context.Context) error {
	lacking := i.lacking()
	if len(lacking) == 0 && i.listed(ctx) == nil {
		fmt.Fprintln(i.out, "nothing is to be installed")
		return nil
	}
	var programs, packages []string
	for _, r := range lacking {
		programs, packages = append(programs, r.program), append(packages, r.packageName)
	}
	commands := [][]string{{"apt-get", "update", "-q"}}
	if len(packages) > 0 {
		commands = append(commands, append([]string{"apt-get", "install", "-y", "-q", "--no-install-recommends"}, packages...))
	}
	switch name, debian := i.distribution(); {
	case !debian || !i.has("apt-get"):
		return usagef("installing what the lab lacks: %s has no packages of Debian or Ubuntu; install these programs with its own tools: %s (on Debian they are in the packages %s)",
			name, strings.Join(programs, ", "), strings.Join(packages, " "))
	case !i.root:
		return usagef("installing what the lab lacks: this user is not root, and nothing was done; run `hitless doctor --install` as root, or these commands: %s", joined(commands))
	}
	for _, words := range commands {
		if err := i.command(ctx, words); err != nil {
			return err
		}
	}
	if left := i.lacking(); len(left) > 0 {
		return usagef("installing what the lab lacks: %s is still missing after %s", left[0].program, joined(commands))
	}
	return nil
}

// command prints a command and runs it. It is interrupted with ctx, not killed: apt-get would leave packages half installed.
func (i installer) command(ctx context.Context, words []string) error {
	fmt.Fprintln(i.out, strings.Join(words, " "))
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive"), i.out, i.out
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return usagef("installing what the lab lacks: %s: %w; its lines above say why; then run `hitless doctor --install` again", strings.Join(words, " "), err)
	}
	return nil
}

func joined(commands [][]string) string {
	var lines []string
	for _, words := range commands {
		lines = append(lines, strings.Join(words, " "))
	}
	return strings.Join(lines, " && ")
}

// distribution is the name of this machine's distribution (os-release(5)), and whether it has the packages of Debian or Ubuntu.
func (i installer) distribution() (name string, debian bool) {
	text, err := os.ReadFile(i.release)
	if err != nil {
		return "this system", false
	}
	name = "this system"
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		value = strings.Trim(value, `"'`)
		switch key {
		case "PRETTY_NAME":
			name = value
		case "ID", "ID_LIKE":
			words := strings.Fields(value)
			debian = debian || slices.Contains(words, "debian") || slices.Contains(words, "ubuntu")
		}
	}
	return name, debian
}
