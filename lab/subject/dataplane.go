package subject

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/mod/module"

	"github.com/hitless/hitless/lab/build"
)

// Recipe is what the host builds and packs for a subject NAME@VERSION that is no kube-proxy. Its Exec is the same as that of a file, once
// the recipe has been followed.
type Recipe struct {
	Version   string            // of the module, as v1.15.19
	Programs  map[string]string // path in the guest by the name of a program that lab/build builds; Exec.Program is one of them
	Main      string            // the one of Programs that starts, which has the subject's flags
	Module    string            // import path; its sources are in Folders and Objects
	Folders   []Folder          // of the module
	Objects   string            // folder of the module with manifests; Manifests are the names of those that are created
	Manifests []string
	Compiler  *Compiler // nil if the guest needs none
}

// Compiler is the compiler for BPF that a program of the guest calls: clang, as Program. Flags are added to those of each call.
type Compiler struct {
	Program string // path in the guest
	Flags   []string
}

// Folder is a folder of a module and its path in the guest. Left are the folders in it that are left out.
type Folder struct {
	From, To string
	Left     []string
}

// dataPlane is a proxy that hitless builds from its module and starts as it starts one of a file.
type dataPlane struct {
	name     string
	versions []string // that the module proxy serves and that were run, oldest first
	exec     func(version string) Exec
	owned    []string // flags that the lab sets, and that a subject may not have
}

// dataPlanes are all of them.
var dataPlanes = []dataPlane{cilium}

var dataPlaneName = regexp.MustCompile(`^([a-z-]+)@v?(\d+\.\d+\.\d+)(?:\?(.*))?$`)

// DataPlanes returns the subjects NAME@VERSION, without flags.
func DataPlanes() (all []Spec) {
	for _, d := range dataPlanes {
		for _, v := range d.versions {
			all = append(all, d.spec(v, ""))
		}
	}
	return all
}

// readDataPlane reads NAME@VERSION?FLAGS; false for a text that names no data plane.
func readDataPlane(text string) (s Spec, is bool, err error) {
	name, _, versioned := strings.Cut(text, "@")
	i := slices.IndexFunc(dataPlanes, func(d dataPlane) bool { return d.name == name })
	if i < 0 || !versioned {
		return Spec{}, false, nil
	}
	d := dataPlanes[i]
	m := dataPlaneName.FindStringSubmatch(text)
	if m == nil || !slices.Contains(d.versions, "v"+m[2]) {
		return Spec{}, true, fmt.Errorf("subject %q: hitless can build %s@%s", text, d.name, strings.Join(d.versions, ", "+d.name+"@"))
	}
	flags := ""
	if strings.Contains(text, "?") {
		if flags, err = d.parseFlags(m[3]); err != nil {
			return Spec{}, true, fmt.Errorf("subject %q: %w", text, err)
		}
	}
	return d.spec("v"+m[2], flags), true, nil
}

// spec is the subject of a version. What its program lacks is a part of the version in reports.
func (d dataPlane) spec(version, flags string) Spec {
	e := d.exec(version)
	e.Name, e.Version, e.Flags = d.name, version, flags
	e.Subject = d.name + "@" + version
	if part := build.LeftOut(module.Version{Path: e.Recipe.Module, Version: version}); part != "" {
		e.Version += " without " + part
	}
	if flags != "" {
		e.Subject += "?" + flags
		e.Args = replaceFlags(e.Args, Spec{Flags: flags}.flagArgs())
	}
	e.Fallback = "on"
	e.Pack.Source = e.Subject
	return FromExec(e)
}

// parseFlags reads flags as those of a kube-proxy.
func (d dataPlane) parseFlags(text string) (string, error) {
	owned := map[string]string{"help": "with it the program ends at once", "version": "with it the program ends at once"}
	for _, name := range d.owned {
		owned[name] = "the lab sets it"
	}
	return parseFlags(text, owned)
}
