package subject

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/url"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/hitless/hitless/internal/input"
)

// ReadExec reads a file that describes a proxy; docs/subjects.md has the format. Paths in it are relative to its directory. Errors
// have the form FILE:LINE: TEXT.
func ReadExec(ctx context.Context, file string) (Exec, error) {
	text, err := input.Read(ctx, file, input.TextBytes)
	if err != nil {
		return Exec{}, fmt.Errorf("reading the description of the subject: %w", err)
	}
	return parseExec(ctx, file, text)
}

// execReader parses one file and keeps the first error.
type execReader struct {
	ctx  context.Context // ends the reading of programs
	file string
	err  error
}

func parseExec(ctx context.Context, file string, text []byte) (Exec, error) {
	r := &execReader{ctx: ctx, file: file}
	root, err := input.Document(file, text)
	if err != nil {
		return Exec{}, err
	}
	e := Exec{Name: strings.TrimSuffix(filepath.Base(file), filepath.Ext(file)), Mode: "exec",
		Stop: Stop{Signal: "TERM", Within: 30 * time.Second}, Pack: Pack{Source: file}}
	has := r.mapping(root, map[string]func(*yaml.Node){
		"name":                func(n *yaml.Node) { e.Name = r.text(n, "name") },
		"version":             func(n *yaml.Node) { e.Version = r.text(n, "version") },
		"mode":                func(n *yaml.Node) { e.Mode = r.word(n, "mode") },
		"program":             func(n *yaml.Node) { r.program(n, &e) },
		"args":                func(n *yaml.Node) { e.Args = r.texts(n, "args") },
		"env":                 func(n *yaml.Node) { e.Env = r.env(n) },
		"files":               func(n *yaml.Node) { e.Pack.Files = r.files(n) },
		"tools":               func(n *yaml.Node) { e.Pack.Tools = r.words(n, "tools") },
		"ready":               func(n *yaml.Node) { e.Ready = r.ready(n) },
		"stop":                func(n *yaml.Node) { r.stop(n, &e.Stop) },
		"cleanup":             func(n *yaml.Node) { e.Cleanup = r.command(n, "cleanup") },
		"modules":             func(n *yaml.Node) { e.Modules = r.modules(n) },
		"objects":             func(n *yaml.Node) { r.objects(n, &e) },
		"mounts":              func(n *yaml.Node) { e.Mounts = r.mounts(n) },
		"terminatingFallback": func(n *yaml.Node) { e.Fallback = r.oneOf(n, "terminatingFallback", "on", "off") },
	})
	line := root.Line
	if n := has["name"]; n != nil {
		line = n.Line
	}
	switch {
	case !subjectName.MatchString(e.Name):
		r.fail(line, "name: %q; give lower-case letters, digits, - and ., beginning with a letter", e.Name)
	case e.Name == Bundled.Name || e.Name == KubeProxy || slices.ContainsFunc(dataPlanes, func(d dataPlane) bool { return d.name == e.Name }):
		r.fail(line, "name: %q is a subject of hitless' own; give another", e.Name)
	case has["program"] == nil:
		r.fail(root.Line, "program is missing: the path of the proxy's program, relative to this file")
	case has["ready"] == nil:
		r.fail(root.Line, "ready is missing: the check that the proxy's rules are in the kernel (ready: {url: ...} or {command: [...]})")
	}
	if r.err != nil {
		return Exec{}, r.err
	}
	if e.Fallback == "" {
		e.Fallback = map[bool]string{true: "on", false: "off"}[e.switchable()]
	}
	return e, nil
}

var (
	subjectName = regexp.MustCompile(`^[a-z][a-z0-9.-]*$`)
	plainWord   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._+-]*$`)
	envName     = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

func (r *execReader) errorf(line int, format string, args ...any) error {
	return input.Errorf(r.file, line, format, args...)
}

func (r *execReader) fail(line int, format string, args ...any) {
	if r.err == nil {
		r.err = r.errorf(line, format, args...)
	}
}

// mapping calls the function of each key with its value and returns the values. Unknown and repeated keys are errors.
func (r *execReader) mapping(n *yaml.Node, fields map[string]func(*yaml.Node)) map[string]*yaml.Node {
	has := map[string]*yaml.Node{}
	if n.Kind != yaml.MappingNode {
		r.fail(n.Line, "want key: value lines; the keys are %s", strings.Join(slices.Sorted(maps.Keys(fields)), ", "))
		return has
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		parse, known := fields[key.Value]
		switch {
		case key.Kind != yaml.ScalarNode || !known:
			r.fail(key.Line, "unknown key %q; the keys are %s", key.Value, strings.Join(slices.Sorted(maps.Keys(fields)), ", "))
			return has
		case has[key.Value] != nil:
			r.fail(key.Line, "%s is given twice", key.Value)
			return has
		}
		has[key.Value] = value
		parse(value)
	}
	return has
}

// text returns a scalar as written, so that 1.10 and on keep their form.
func (r *execReader) text(n *yaml.Node, what string) string {
	if n.Kind != yaml.ScalarNode {
		r.fail(n.Line, "%s: give a text", what)
	}
	if err := checkPlaceholders(n.Value); err != nil {
		r.fail(n.Line, "%s: %w", what, err)
	}
	return n.Value
}

func (r *execReader) word(n *yaml.Node, what string) string {
	if n.Kind != yaml.ScalarNode || !plainWord.MatchString(n.Value) {
		r.fail(n.Line, "%s: give one word of letters, digits, . _ + and -", what)
	}
	return n.Value
}

func (r *execReader) oneOf(n *yaml.Node, what string, words ...string) string {
	if n.Kind != yaml.ScalarNode || !slices.Contains(words, n.Value) {
		r.fail(n.Line, "%s: give one of %s", what, strings.Join(words, ", "))
	}
	return n.Value
}

func (r *execReader) list(n *yaml.Node, what string, parse func(*yaml.Node)) {
	if n.Kind != yaml.SequenceNode {
		r.fail(n.Line, "%s: give a list, such as [a, b]", what)
		return
	}
	for _, entry := range n.Content {
		parse(entry)
	}
}

func (r *execReader) texts(n *yaml.Node, what string) (texts []string) {
	r.list(n, what, func(entry *yaml.Node) { texts = append(texts, r.text(entry, what)) })
	return texts
}

func (r *execReader) words(n *yaml.Node, what string) (words []string) {
	r.list(n, what, func(entry *yaml.Node) { words = append(words, r.word(entry, what)) })
	return words
}

// command is a list of a program and its arguments; no shell splits them.
func (r *execReader) command(n *yaml.Node, what string) []string {
	words := r.texts(n, what)
	if len(words) == 0 || words[0] == "" {
		r.fail(n.Line, "%s: give a program and its arguments", what)
	}
	return words
}

func (r *execReader) env(n *yaml.Node) []string {
	if n.Kind != yaml.MappingNode {
		r.fail(n.Line, "env: give KEY: value lines")
		return nil
	}
	var env []string
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if !envName.MatchString(key.Value) {
			r.fail(key.Line, "env: %q is not the name of a variable", key.Value)
		}
		if slices.ContainsFunc(env, func(e string) bool { return strings.HasPrefix(e, key.Value+"=") }) {
			r.fail(key.Line, "env: %s is given twice", key.Value)
		}
		env = append(env, key.Value+"="+r.text(value, "env: "+key.Value))
	}
	slices.Sort(env)
	return env
}

// program finds the program on the host; its digest is the default of the version.
func (r *execReader) program(n *yaml.Node, e *Exec) {
	host := r.onHost(r.text(n, "program"))
	e.Pack.Program, e.Program = host, path.Join(ExecDir, filepath.Base(host))
	sum, err := digest(r.ctx, host)
	if err != nil {
		r.fail(n.Line, "program: %w", err)
	}
	if e.Version == "" {
		e.Version = "sha256:" + sum
	}
}

// digest is the first 12 hex digits of a file's SHA-256.
func digest(ctx context.Context, file string) (string, error) {
	sum := sha256.New()
	if err := input.Copy(ctx, sum, file, input.ProgramBytes); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil))[:12], nil
}

// onHost resolves a path relative to the file.
func (r *execReader) onHost(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(filepath.Dir(r.file), name)
}

// mounted are the guest's directories that file systems of the kernel cover.
var mounted = []string{"/dev/", "/proc/", "/sys/", "/tmp/"}

func (r *execReader) files(n *yaml.Node) (files []File) {
	r.list(n, "files", func(entry *yaml.Node) {
		var f File
		var names []string // of the files in a folder
		var err error
		has := r.mapping(entry, map[string]func(*yaml.Node){
			"from": func(n *yaml.Node) {
				f.From = r.onHost(r.text(n, "from"))
				if names, err = filesOf(f.From, input.ProgramBytes); err != nil {
					r.fail(n.Line, "from: %w", err)
				}
			},
			"to": func(n *yaml.Node) {
				f.To = r.text(n, "to")
				covered := slices.ContainsFunc(mounted, func(dir string) bool { return strings.HasPrefix(f.To, dir) })
				if !path.IsAbs(f.To) || path.Clean(f.To) != f.To || f.To == "/" || covered {
					r.fail(n.Line, "to: %q; give an absolute path of the guest that is not below %s", f.To, strings.Join(mounted, " "))
				}
			},
		})
		if has["from"] == nil || has["to"] == nil {
			r.fail(entry.Line, "files: an entry needs from: (path here) and to: (path in the guest)")
		}
		for _, name := range names {
			files = append(files, File{From: filepath.Join(f.From, name), To: path.Join(f.To, filepath.ToSlash(name))})
		}
	})
	return files
}

func (r *execReader) ready(n *yaml.Node) (ready Ready) {
	has := r.mapping(n, map[string]func(*yaml.Node){
		"url": func(n *yaml.Node) {
			ready.URL = r.text(n, "url")
			if u, err := url.Parse(placeholder.ReplaceAllString(ready.URL, "x")); err != nil || u.Scheme != "http" || u.Host == "" {
				r.fail(n.Line, "url: %q; give a URL such as http://127.0.0.1:10256/healthz", ready.URL)
			}
		},
		"command": func(n *yaml.Node) { ready.Command = r.command(n, "command") },
		"within":  func(n *yaml.Node) { ready.Within = r.within(n, 30*time.Minute) },
	})
	if (has["url"] == nil) == (has["command"] == nil) && r.err == nil {
		r.fail(n.Line, "ready: give either url or command")
	}
	return ready
}

func (r *execReader) stop(n *yaml.Node, stop *Stop) {
	r.mapping(n, map[string]func(*yaml.Node){
		"signal": func(n *yaml.Node) {
			stop.Signal = strings.TrimPrefix(r.word(n, "signal"), "SIG")
			if signalOf(stop.Signal) == 0 {
				r.fail(n.Line, "signal: there is no signal %q; give TERM, INT or another", stop.Signal)
			}
		},
		"within": func(n *yaml.Node) { stop.Within = r.within(n, 10*time.Minute) },
	})
}

// within is a duration above 0.
func (r *execReader) within(n *yaml.Node, most time.Duration) time.Duration {
	d, err := time.ParseDuration(n.Value)
	if err != nil || d <= 0 || d > most {
		r.fail(n.Line, "within: give a duration above 0, at most %.0fm, such as 30s", most.Minutes())
	}
	return d
}
