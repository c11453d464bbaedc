package build

import (
	"bufio"
	_ "embed" // for the table of pins
	"fmt"
	"slices"
	"strings"
	"sync"

	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
)

//go:embed pins.txt
var pinsText string

//go:embed tools.txt
var toolsText string

//go:embed cilium.txt
var ciliumText string

// tableOf is the table that has a program, with the files that replace others, so that a change of one leaves the other's built programs in
// the cache.
func tableOf(program string) string {
	switch {
	case strings.HasPrefix(program, "cilium-"):
		return ciliumText + ciliumBGP
	case strings.Contains(toolsText, " "+program+" "):
		return toolsText
	}
	return pinsText
}

// program is a row of the table of programs.
type program struct {
	Range
	Module  string // module that holds the main package
	Package string // import path of the main package; of the tested one, or of the one whose Run the generated main package calls
	Kind    programKind
	Plugins []string // packages that the generated main package imports; it is not generated without them
}

// programKind is what a program is for.
type programKind int

const (
	inLab     programKind = iota // part of a control plane, or a subject
	tool                         // runs in pods, or tests a lab
	testsTool                    // likewise; compiled with go test -c
)

// moved is the replacement of a dependency whose repository does not exist any more.
type moved struct {
	To   module.Version // the replacement
	Else string         // the version when To.Path is also a dependency of the build
}

// floor is the oldest version of a module that can be built.
type floor struct {
	Version string
	Reason  string
}

// substitute replaces a revision that has no module version.
type substitute struct {
	Version string
	Reason  string
}

// dataset is the content of pins.txt, cilium.txt and tools.txt.
type dataset struct {
	programs    []program
	pins        map[string][]string // versions by module path, in the order of the file
	moved       map[string]moved    // by old path
	floors      map[string]floor    // module path
	leftOut     []leftOut
	substitutes map[string]map[string]substitute // by module path and the first 12 hex digits of the revision
}

// embedded is the parsed tables of this binary.
var embedded = sync.OnceValues(func() (*dataset, error) { return parseData(pinsText + ciliumText + toolsText) })

// parseData parses the format that the header of pins.txt describes.
func parseData(text string) (*dataset, error) {
	d := &dataset{
		pins:        map[string][]string{},
		moved:       map[string]moved{},
		floors:      map[string]floor{},
		substitutes: map[string]map[string]substitute{},
	}
	lines := bufio.NewScanner(strings.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		line, _, _ := strings.Cut(" "+lines.Text(), " #")
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		if err := d.add(fields[0], fields[1:]); err != nil {
			return nil, fmt.Errorf("reading the table of pins, line %d: %w", n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("reading the table of pins: %w", err)
	}
	return d, nil
}

// add adds a row of a kind.
func (d *dataset) add(kind string, f []string) error {
	kindOf, isProgram := map[string]programKind{"program": inLab, "tool": tool, "test": testsTool}[kind]
	switch {
	case kind == "pin" && len(f) == 2:
		d.pins[f[0]] = append(d.pins[f[0]], f[1])
		return checkVersions(f[1])
	case kind == "moved" && (len(f) == 3 || len(f) == 4):
		m := moved{To: module.Version{Path: f[1], Version: f[2]}}
		if len(f) == 4 {
			m.Else = f[3]
		}
		d.moved[f[0]] = m
		return checkVersions(f[2:]...)
	case kind == "floor" && len(f) > 2:
		d.floors[f[0]] = floor{Version: f[1], Reason: strings.Join(f[2:], " ")}
		return checkVersions(f[1])
	case kind == "standin" && len(f) > 3:
		if d.substitutes[f[0]] == nil {
			d.substitutes[f[0]] = map[string]substitute{}
		}
		d.substitutes[f[0]][f[1]] = substitute{Version: f[2], Reason: strings.Join(f[3:], " ")}
		return checkVersions(f[2])
	case kind == "leftout" && len(f) == 6:
		d.leftOut = append(d.leftOut, leftOut{f[0], f[1], f[2], f[3], f[4], f[5]})
		return checkVersions(f[1])
	case isProgram && len(f) == 6:
		d.programs = append(d.programs, program{
			Range:  Range{Name: f[0], Oldest: f[3], Newest: f[4], Default: f[5]},
			Module: f[1], Package: f[2], Kind: kindOf,
		})
		return checkVersions(f[5])
	case kind == "plugin" && len(f) == 2:
		at := slices.IndexFunc(d.programs, func(p program) bool { return p.Name == f[0] && p.Kind == tool })
		if at < 0 {
			return fmt.Errorf("no tool %q stands above its plugin %s", f[0], f[1])
		}
		d.programs[at].Plugins = append(d.programs[at].Plugins, f[1])
		return nil
	}
	return fmt.Errorf("a row %q with %d fields is not known", kind, len(f))
}

func checkVersions(versions ...string) error {
	for _, v := range versions {
		if !semver.IsValid(v) {
			return fmt.Errorf("%q is not a version", v)
		}
	}
	return nil
}
