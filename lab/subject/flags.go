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

// ownedFlags are the flags of kube-proxy that a subject may not have, with the reasons.
var ownedFlags = map[string]string{
	"cleanup":                "with it kube-proxy ends at once",
	"cleanup-ipvs":           "it is for the cleanup of a scenario",
	"cluster-cidr":           "the lab sets it to the range of its pods",
	"config":                 "kube-proxy ignores most of its flags when it has a configuration file",
	"conntrack-max-per-core": "the table of connections belongs to the whole kernel, and kube-proxy ends when it may not change it",
	"healthz-bind-address":   "load balancers check the proxy at port 10256",
	"healthz-port":           "load balancers check the proxy at port 10256",
	"help":                   "with it kube-proxy ends at once",
	"hostname-override":      "the lab sets it to the name of the node",
	"init-only":              "with it kube-proxy ends at once",
	"kubeconfig":             "the lab sets it to that of its API server",
	"master":                 "the lab sets the API server",
	"metrics-bind-address":   "hitless asks the proxy for its mode at port 10249",
	"metrics-port":           "hitless asks the proxy for its mode at port 10249",
	"proxy-mode":             "the subject's name has the mode already",
	"version":                "with it kube-proxy ends at once",
	"write-config-to":        "with it kube-proxy ends at once",
}

// fallbackGate is the feature gate that the parameter terminatingFallback sets.
const fallbackGate = "ProxyTerminatingEndpoints"

var flagName = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)

// parseFlags reads flags as NAME=VALUE&NAME=VALUE and returns them in order of their names. owned are those that are refused.
func parseFlags(text string, owned map[string]string) (string, error) {
	var all []string
	for f := range strings.SplitSeq(text, "&") {
		name, value, given := strings.Cut(f, "=")
		switch {
		case !flagName.MatchString(name) || !given || value == "":
			return "", fmt.Errorf("%q is no flag; give flags as NAME=VALUE&NAME=VALUE, such as ipvs-min-sync-period=0s&ipvs-strict-arp=true", f)
		case owned[name] != "":
			return "", fmt.Errorf("the flag %s cannot be given: %s; leave it out", name, owned[name])
		case name == "feature-gates" && strings.Contains(value, fallbackGate+"="):
			return "", fmt.Errorf("the feature gate %s is set by --set terminatingFallback=on or off; leave it out", fallbackGate)
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

// helpWithin bounds the time in which a program lists its flags. On a machine whose CPUs others use, 20 s were too short for cilium-agent.
const helpWithin = 2 * time.Minute

// helpFlag matches a flag at the begin of a line of --help, after its short form if it has one.
var helpFlag = regexp.MustCompile(`(?m)^\s+(?:-\w, )?(--[a-z][a-z0-9-]*)`)

// similar proposes the listed flags that end like a name, as ipvs-strict-arp for strict-arp; empty for none.
func similar(listed []string, name string) string {
	var all []string
	for _, other := range listed {
		if strings.HasSuffix(other, strings.TrimPrefix(name, "-")) { // -strict-arp
			all = append(all, strings.TrimLeft(other, "-"))
		}
	}
	if len(all) == 0 {
		return ""
	}
	return "; it has " + strings.Join(all, " and ")
}

// CheckFlags returns an error that names a flag which a built proxy does not have, by the output of its --help.
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
	var listed []string
	for _, m := range helpFlag.FindAllSubmatch(help, -1) {
		listed = append(listed, string(m[1]))
	}
	for _, f := range s.flagArgs() {
		name, _, _ := strings.Cut(f, "=")
		if !slices.Contains(listed, name) {
			return fmt.Errorf("the output of --help of %s@%s has no flag %s: there is none, or it is hidden, and hidden flags may change without notice%s", s.Name, s.Version, name, similar(listed, name))
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
