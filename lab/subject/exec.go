package subject

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Exec is a proxy that a file of the user's describes: what the guest needs to know of it. It is part of the plan, so it
// holds no path of the host.
type Exec struct {
	Name    string   `json:"name"`
	Version string   `json:"version"` // as the file says it, or sha256: and the first 12 hex digits of the program's digest
	Mode    string   `json:"mode"`    // a word for the reports; ipvs also says that the tables are IPVS'
	Program string   `json:"program"` // path in the guest
	Args    []string `json:"args,omitempty"`
	Env     []string `json:"env,omitempty"` // KEY=value, sorted
	Ready   Ready    `json:"ready"`
	Stop    Stop     `json:"stop"`
	// Cleanup is run on each node when the run is over and the proxy has ended; empty for none.
	Cleanup []string `json:"cleanup,omitempty"`
	// Fallback is what the proxy does about terminating endpoints on its own: on or off (KEP-1669).
	Fallback string `json:"fallback"`

	// Pack is what must be put into the guest for it; it stays on the host.
	Pack Pack `json:"-"`
}

// Ready says how to ask a started proxy whether its rules stand. One of the two is given.
type Ready struct {
	URL     string   `json:"url,omitempty"`     // answers 200
	Command []string `json:"command,omitempty"` // exits with 0
}

// Stop says how to end the proxy: a signal, and SIGKILL when it is still there after Within.
type Stop struct {
	Signal string        `json:"signal"` // without SIG: TERM
	Within time.Duration `json:"withinNs"`
}

// Pack lists the files of the host that an Exec needs in the guest.
type Pack struct {
	Source  string // the file that described it, for messages
	Program string // on the host
	Files   []File
	Tools   []string // names of programs of the host
}

// File is a file of the host that is put into the guest.
type File struct {
	From string // on the host
	To   string // in the guest
}

// ExecDir is the guest's folder for the programs that a file describes.
const ExecDir = "/opt/subject"

// placeholders are the words in braces that a file may use in args, env, ready and cleanup, with their meaning.
var placeholders = map[string]string{
	"program":             "path of the program in the guest",
	"node":                "name of the node",
	"nodeIP":              "the node's address",
	"podCIDR":             "range of the node's pods",
	"clusterCIDR":         "range of all pods",
	"kubeconfig":          "path of a kubeconfig",
	"server":              "URL of the API server",
	"terminatingFallback": "on or off",
}

// Placeholders lists the words that a file may put in braces, sorted.
func Placeholders() []string {
	words := make([]string, 0, len(placeholders))
	for word := range placeholders {
		words = append(words, word)
	}
	slices.Sort(words)
	return words
}

var placeholder = regexp.MustCompile(`\{([A-Za-z]+)\}`)

// checkPlaceholders finds the first word in braces that is none.
func checkPlaceholders(text string) error {
	for _, m := range placeholder.FindAllStringSubmatch(text, -1) {
		if _, known := placeholders[m[1]]; !known {
			return fmt.Errorf("unknown placeholder %s; the placeholders are {%s}", m[0], strings.Join(Placeholders(), "} {"))
		}
	}
	return nil
}

// expand puts values in for the placeholders.
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

// switchable tells whether the proxy takes terminatingFallback as a setting.
func (e *Exec) switchable() bool {
	return slices.ContainsFunc(slices.Concat(e.Args, e.Env), func(text string) bool {
		return strings.Contains(text, "{terminatingFallback}")
	})
}

// FromExec is the subject that a plan carries.
func FromExec(e Exec) Spec {
	return Spec{Name: e.Name, Version: e.Version, Mode: e.Mode, Exec: &e}
}
