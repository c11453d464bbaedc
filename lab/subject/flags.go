package subject

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"
)

// ownedFlags are the flags of kube-proxy that the lab sets itself, or that end it.
var ownedFlags = []string{"cleanup", "cleanup-ipvs", "cluster-cidr", "config", "help", "hostname-override", "kubeconfig", "master", "proxy-mode", "version", "write-config-to"}

var flagName = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)

// parseFlags reads flags as NAME=VALUE&NAME=VALUE and returns them in order of their names.
func parseFlags(text string) (string, error) {
	var all []string
	for f := range strings.SplitSeq(text, "&") {
		name, value, given := strings.Cut(f, "=")
		switch {
		case !flagName.MatchString(name) || !given || value == "":
			return "", fmt.Errorf("%q is no flag; give flags as NAME=VALUE&NAME=VALUE, such as ipvs-min-sync-period=0s&ipvs-strict-arp=true", f)
		case slices.Contains(ownedFlags, name):
			return "", fmt.Errorf("the flag %s is set by the lab; leave it out", name)
		case slices.ContainsFunc(all, func(other string) bool { return strings.HasPrefix(other, name+"=") }):
			return "", fmt.Errorf("the flag %s is given twice; give it once", name)
		}
		all = append(all, f)
	}
	slices.Sort(all)
	return strings.Join(all, "&"), nil
}

// flagArgs are the flags of the subject's name as arguments of its program.
func (s Spec) flagArgs() (args []string) {
	if s.Flags == "" {
		return nil
	}
	for f := range strings.SplitSeq(s.Flags, "&") {
		args = append(args, "--"+f)
	}
	return args
}

// withFlags adds the flags of the subject's name to others, which they replace. Feature gates are joined.
func (s Spec) withFlags(args []string) []string {
	const gates = "--feature-gates="
	own := s.flagArgs()
	for i, f := range own {
		for _, a := range args {
			if value, is := strings.CutPrefix(a, gates); is && strings.HasPrefix(f, gates) {
				own[i] += "," + value
			}
		}
	}
	return replaceFlags(args, own)
}

// helpWithin bounds the time in which a program lists its flags.
const helpWithin = 20 * time.Second

// CheckFlags returns an error that names a flag which a kube-proxy does not have, by the output of its --help.
func (s Spec) CheckFlags(ctx context.Context, program string) error {
	if s.Flags == "" {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, helpWithin)
	defer cancel()
	help, err := exec.CommandContext(limited, program, "--help").CombinedOutput()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if len(help) == 0 {
		return fmt.Errorf("asking %s for its flags: --help wrote nothing (%v)", s, err) // some versions exit with a code other than 0
	}
	for _, f := range s.flagArgs() {
		name, _, _ := strings.Cut(f, "=")
		if !regexp.MustCompile(`(?m)(^|\s)` + regexp.QuoteMeta(name) + `(\s|=|$)`).Match(help) {
			return fmt.Errorf("%s has no flag %s; `%s@%s --help` lists its flags", s, name, s.Name, s.Version)
		}
	}
	return nil
}

// replaceFlags returns flags with others, which replace those of the same name: the bundled proxier refuses a flag that is given twice.
func replaceFlags(flags, others []string) []string {
	kept := slices.DeleteFunc(slices.Clone(flags), func(flag string) bool {
		name, _, _ := strings.Cut(flag, "=")
		return slices.ContainsFunc(others, func(o string) bool { return strings.HasPrefix(o, name+"=") })
	})
	return append(kept, others...)
}

// Program is a subject as the lab starts it.
type Program struct {
	Spec     Spec
	Path     string // unused for an Exec, which has its own
	Fallback string // terminatingFallback: on or off
}
