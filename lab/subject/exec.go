package subject

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Exec is a proxy that a file of the user describes, as far as the guest needs it. It is part of the plan and has no paths of the
// host.
type Exec struct {
	// Subject is NAME@VERSION?FLAGS, if hitless builds the proxy; empty for a file of the user. Flags are those of the name.
	Subject string   `json:"subject,omitempty"`
	Flags   string   `json:"flags,omitempty"`
	Name    string   `json:"name"`
	Version string   `json:"version"` // of the file, or sha256: and the first 12 hex digits of the program's digest
	Mode    string   `json:"mode"`    // a word for the reports; ipvs also means that the proxy uses IPVS tables
	Program string   `json:"program"` // path in the guest
	Args    []string `json:"args,omitempty"`
	Env     []string `json:"env,omitempty"` // KEY=value, sorted
	// TimerSlack is how late the kernel may end the proxy's sleeps; 0 for its default, 50 µs.
	TimerSlack time.Duration `json:"timerSlackNs,omitempty"`
	Ready      Ready         `json:"ready"`
	Stop       Stop          `json:"stop"`
	// Cleanup is run on each node at the end of a run, after the proxy has exited; empty for none.
	Cleanup []string `json:"cleanup,omitempty"`
	// Modules are the kernel modules that are loaded before the proxy starts.
	Modules []string `json:"modules,omitempty"`
	// Objects are the manifests that are applied before the proxy starts, in this order.
	Objects []Manifest `json:"objects,omitempty"`
	// Mounts are mounted on each node before the proxy starts, in this order.
	Mounts []Mount `json:"mounts,omitempty"`
	// Tables are the tables that the proxy programs, if its mode does not tell: CiliumMaps.
	Tables string `json:"tables,omitempty"`
	// CNI is chained after the lab's network of each pod; nil for none.
	CNI *CNI `json:"cni,omitempty"`
	// Fallback is the proxy's default for terminating endpoints: on or off (KEP-1669).
	Fallback string `json:"fallback"`

	// Pack lists the files for the guest; it stays on the host. Recipe says how the host makes them; nil for a file of the user.
	Pack   Pack    `json:"-"`
	Recipe *Recipe `json:"-"`
}

// Ready is the readiness check of a started proxy: its rules are in the kernel. Exactly one of URL and Command is set.
type Ready struct {
	URL     string        `json:"url,omitempty"`      // answers 200
	Command []string      `json:"command,omitempty"`  // exits with 0
	Within  time.Duration `json:"withinNs,omitempty"` // of the start; 0 for 90 s
}

// Manifest is a YAML file with objects of the API.
type Manifest struct {
	Path  string   `json:"path"`            // in the guest
	Kinds []string `json:"kinds,omitempty"` // of its objects, as KIND.GROUP, each once; of the core group KIND
}

// Mount is a file system of the node's own.
type Mount struct {
	Kind string `json:"kind"` // one of MountKinds
	At   string `json:"at"`   // directory of the node
}

// The kinds of Mount.
const (
	Tmpfs   = "tmpfs"
	BPFFS   = "bpffs"
	Cgroup2 = "cgroup2"
)

// MountKinds are the kinds of file systems that a file may mount.
var MountKinds = []string{Tmpfs, BPFFS, Cgroup2}

// NeedsGroups reports whether the proxy needs a control group on each node.
func (e *Exec) NeedsGroups() bool {
	return e != nil && slices.ContainsFunc(e.Mounts, func(m Mount) bool { return m.Kind == Cgroup2 })
}

// ManifestPaths are the paths of Objects in the guest; none of a nil Exec.
func (e *Exec) ManifestPaths() (paths []string) {
	if e == nil {
		return nil
	}
	for _, m := range e.Objects {
		paths = append(paths, m.Path)
	}
	return paths
}

// CiliumMaps are the BPF maps of Cilium's load balancer.
const CiliumMaps = "cilium-maps"

// CNI is a plugin of the Container Network Interface.
type CNI struct {
	Program string `json:"program"` // path in the guest
	Config  string `json:"config"`  // network configuration in JSON
}

// Stop is how the proxy is stopped: a signal, and SIGKILL after Within.
type Stop struct {
	Signal string        `json:"signal"` // without SIG: TERM
	Within time.Duration `json:"withinNs"`
}

// Pack lists the files of the host that an Exec needs in the guest.
type Pack struct {
	Source  string // the describing file, for messages
	Program string // on the host
	Files   []File
	Objects []File   // manifests
	Tools   []string // names of programs of the host
}

// File is a file of the host and its path in the guest.
type File struct {
	From string // on the host
	To   string // in the guest
}

// ExecDir is the guest's folder for the programs that a file describes.
const ExecDir = "/opt/subject"

// placeholders are the words in braces for args, env, ready and cleanup, with their meaning.
var placeholders = map[string]string{
	"program":                 "path of the program in the guest",
	"node":                    "name of the node",
	"nodeIP":                  "the node's address, with --set family=dual of both families: 10.0.0.11,fd00:10::15",
	"podCIDR":                 "range of the node's pods, likewise",
	"clusterCIDR":             "range of all pods, likewise",
	"devices":                 "the node's network devices that do not lead to its pods, separated by commas: eth0",
	"nodeDevice":              "the one of them that leads to the other nodes",
	"kubeconfig":              "path of a kubeconfig",
	"server":                  "URL of the API server",
	"terminatingFallback":     "on or off",
	"terminatingFallbackBool": "true or false: the same for flags with such values",
}

// placeholderWords returns the placeholders without braces, sorted.
func placeholderWords() []string {
	words := make([]string, 0, len(placeholders))
	for word := range placeholders {
		words = append(words, word)
	}
	slices.Sort(words)
	return words
}

var placeholder = regexp.MustCompile(`\{([A-Za-z]+)\}`)

// checkPlaceholders returns an error for the first unknown placeholder.
func checkPlaceholders(text string) error {
	for _, m := range placeholder.FindAllStringSubmatch(text, -1) {
		if _, known := placeholders[m[1]]; !known {
			return fmt.Errorf("unknown placeholder %s; the placeholders are {%s}", m[0], strings.Join(placeholderWords(), "} {"))
		}
	}
	return nil
}

// expand replaces the placeholders by their values.
func expand(text string, values map[string]string) string {
	return placeholder.ReplaceAllStringFunc(text, func(m string) string { return values[m[1:len(m)-1]] })
}

func expandAll(texts []string, values map[string]string) []string {
	expanded := make([]string, len(texts))
	for i, text := range texts {
		expanded[i] = expand(text, values)
	}
	return expanded
}

// switchable reports whether terminatingFallback is a setting of the proxy.
func (e *Exec) switchable() bool {
	return slices.ContainsFunc(slices.Concat(e.Args, e.Env), func(text string) bool {
		return strings.Contains(text, "{terminatingFallback")
	})
}

// FromExec returns the Spec of an Exec.
func FromExec(e Exec) Spec {
	return Spec{Name: e.Name, Version: e.Version, Mode: e.Mode, Flags: e.Flags, Exec: &e}
}
