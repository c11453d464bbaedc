package replay

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	jsonserializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/client-go/kubernetes/scheme"
)

// Timeline is a list of object changes, each at an offset from the start of the run. Its text is a YAML sequence; each
// step has `at` (a Go duration that never decreases) and exactly one of
//
//	apply:  an object as in a manifest: created, or replaced (see Server.Apply)
//	delete: {kind, namespace, name, gracePeriodSeconds}; see Server.Delete, the last may be left out
//
// For example:
//
//	# one endpoint goes away
//	- at: 0s
//	  apply:
//	    apiVersion: v1
//	    kind: Service
//	    metadata: {name: web}
//	    spec: {clusterIP: 10.96.0.10, ports: [{port: 80}]}
//	- at: 5s
//	  delete: {kind: EndpointSlice, namespace: default, name: web-1}
//
// An object without a namespace is in "default" where its kind has namespaces. Anchors, aliases, further documents and
// fields that the object's type does not have are errors.
type Timeline struct {
	Steps []Step
}

// Step is one change; exactly one of Apply and Delete is set.
type Step struct {
	At     time.Duration
	Line   int // where the step begins in the text
	Apply  *unstructured.Unstructured
	Delete *Deletion
}

// Deletion is what a step deletes.
type Deletion struct {
	Ref
	Options metav1.DeleteOptions
}

// ParseTimeline reads the text of a timeline. Every error names the line, as file:line: what is wrong.
func ParseTimeline(file string, text []byte) (*Timeline, error) {
	p := &timelineParser{file: file}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var doc, more yaml.Node
	switch err := decoder.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil, p.errorf(1, "the timeline is empty; it must be a list of steps")
	case err != nil:
		return nil, p.notYAML(err)
	}
	if err := decoder.Decode(&more); !errors.Is(err, io.EOF) {
		if err != nil {
			return nil, p.notYAML(err)
		}
		return nil, p.errorf(more.Line, "a second document; a timeline is one list of steps")
	}
	root := doc.Content[0]
	if root.Kind != yaml.SequenceNode {
		return nil, p.errorf(root.Line, "the timeline must be a list of steps (- at: 5s ...)")
	}
	t := &Timeline{}
	var last time.Duration
	for _, n := range root.Content {
		step, err := p.step(n)
		if err != nil {
			return nil, err
		}
		if step.At < last {
			return nil, p.errorf(step.Line, "at: %s comes after %s; steps must be in the order of time", step.At, last)
		}
		last = step.At
		t.Steps = append(t.Steps, step)
	}
	return t, nil
}

type timelineParser struct{ file string }

func (p *timelineParser) errorf(line int, format string, args ...any) error {
	return fmt.Errorf("%s:%d: %w", p.file, line, fmt.Errorf(format, args...))
}

// notYAML puts the line that the YAML reader names, if any, where other errors have it.
func (p *timelineParser) notYAML(err error) error {
	if m := yamlLine.FindStringSubmatch(err.Error()); m != nil {
		return fmt.Errorf("%s:%s: this is not YAML: %s", p.file, m[1], m[2])
	}
	return fmt.Errorf("%s: this is not YAML: %w", p.file, err)
}

func (p *timelineParser) step(n *yaml.Node) (Step, error) {
	step := Step{Line: n.Line}
	entries, err := p.mapping(n, "at", "apply", "delete")
	if err != nil {
		return step, err
	}
	at, hasAt := entries["at"]
	apply, hasApply := entries["apply"]
	deletion, hasDelete := entries["delete"]
	switch {
	case !hasAt:
		return step, p.errorf(n.Line, "a step needs at: (a duration such as 5s)")
	case hasApply == hasDelete:
		return step, p.errorf(n.Line, "a step needs exactly one of apply: and delete:")
	}
	if step.At, err = time.ParseDuration(at.Value); err != nil || at.Kind != yaml.ScalarNode || step.At < 0 {
		return step, p.errorf(at.Line, "at: %q is not a duration from the start, such as 5s or 1m30s", at.Value)
	}
	if hasApply {
		step.Apply, err = p.object(apply)
	} else {
		step.Delete, err = p.deletion(deletion)
	}
	return step, err
}

// mapping returns the entries of n, which may have only the given keys (any when none are given), each once.
func (p *timelineParser) mapping(n *yaml.Node, keys ...string) (map[string]*yaml.Node, error) {
	if n.Kind != yaml.MappingNode {
		return nil, p.errorf(n.Line, "want a mapping (key: value)%s", oneOf(keys))
	}
	entries := map[string]*yaml.Node{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if k.Kind != yaml.ScalarNode || k.ShortTag() == "!!merge" {
			return nil, p.errorf(k.Line, "a key must be a plain word")
		}
		if _, twice := entries[k.Value]; twice {
			return nil, p.errorf(k.Line, "%q is given twice", k.Value)
		}
		if len(keys) > 0 && !slices.Contains(keys, k.Value) {
			return nil, p.errorf(k.Line, "unknown key %q%s", k.Value, oneOf(keys))
		}
		entries[k.Value] = v
	}
	return entries, nil
}

func oneOf(keys []string) string {
	if len(keys) == 0 {
		return ""
	}
	return "; known keys are " + strings.Join(keys, ", ")
}

func (p *timelineParser) deletion(n *yaml.Node) (*Deletion, error) {
	entries, err := p.mapping(n, "kind", "namespace", "name", "gracePeriodSeconds")
	if err != nil {
		return nil, err
	}
	d := &Deletion{}
	for _, f := range []struct {
		key  string
		into any
	}{{"kind", &d.Kind}, {"namespace", &d.Namespace}, {"name", &d.Name}, {"gracePeriodSeconds", &d.Options.GracePeriodSeconds}} {
		if v, given := entries[f.key]; given {
			if err := v.Decode(f.into); err != nil {
				return nil, p.errorf(v.Line, "%s: %q cannot be read: %w", f.key, v.Value, err)
			}
		}
	}
	r := resourceOf("", d.Kind)
	switch grace := d.Options.GracePeriodSeconds; {
	case r == nil:
		return nil, p.errorf(n.Line, "delete: kind %q is not known to the replay control plane", d.Kind)
	case d.Name == "":
		return nil, p.errorf(n.Line, "delete: name is missing")
	case !r.namespaced && d.Namespace != "":
		return nil, p.errorf(n.Line, "delete: a %s has no namespace", d.Kind)
	case grace != nil && *grace < 0:
		return nil, p.errorf(n.Line, "delete: gracePeriodSeconds must not be negative")
	}
	if r.namespaced && d.Namespace == "" {
		d.Namespace = "default"
	}
	return d, nil
}

// resourceOf finds a resource by kind, of any API version when that is empty; nil when there is none.
func resourceOf(apiVersion, kind string) *resource {
	for _, r := range resources() {
		if r.hasKind(apiVersion, kind) || apiVersion == "" && r.kind == kind && !r.review {
			return r
		}
	}
	return nil
}

// object reads an applied object and checks it strictly against its type.
func (p *timelineParser) object(n *yaml.Node) (*unstructured.Unstructured, error) {
	lines := map[string]int{}
	value, err := p.value(n, "", lines)
	if err != nil {
		return nil, err
	}
	content, ok := value.(map[string]any)
	if !ok {
		return nil, p.errorf(n.Line, "apply: want an object with apiVersion, kind and metadata")
	}
	data, err := json.Marshal(content)
	if err != nil {
		return nil, p.errorf(n.Line, "apply: %w", err)
	}
	u, err := parse(data)
	if err != nil {
		return nil, p.errorf(n.Line, "apply: %w", err)
	}
	r := resourceOf(u.GetAPIVersion(), u.GetKind())
	if r == nil || u.GetAPIVersion() == "" {
		return nil, p.errorf(n.Line, "apply: apiVersion %q, kind %q is not known to the replay control plane", u.GetAPIVersion(), u.GetKind())
	}
	if err := checkStrictly(data); err != nil {
		return nil, p.errorf(lineOf(err, lines, n.Line), "apply: %w", err)
	}
	switch {
	case u.GetName() == "":
		return nil, p.errorf(n.Line, "apply: metadata.name is missing")
	case !r.namespaced && u.GetNamespace() != "":
		return nil, p.errorf(n.Line, "apply: a %s has no namespace", r.kind)
	case r.namespaced && u.GetNamespace() == "":
		u.SetNamespace("default")
	}
	if err := admit(&store{resource: r}, u.DeepCopy()); err != nil {
		return nil, p.errorf(n.Line, "apply: %w", err)
	}
	return u, nil
}

// value turns a node into what JSON would give, and notes the line of every field under its path (spec.ports[0].port,
// and, for the first of its kind, spec.ports.port).
func (p *timelineParser) value(n *yaml.Node, path string, lines map[string]int) (any, error) {
	lines[path] = n.Line
	if flat := indices.ReplaceAllString(path, ""); lines[flat] == 0 {
		lines[flat] = n.Line
	}
	switch n.Kind {
	case yaml.MappingNode:
		if _, err := p.mapping(n); err != nil {
			return nil, err
		}
		m := map[string]any{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			name := n.Content[i].Value
			v, err := p.value(n.Content[i+1], strings.TrimPrefix(path+"."+name, "."), lines)
			if err != nil {
				return nil, err
			}
			m[name] = v
		}
		return m, nil
	case yaml.SequenceNode:
		list := []any{}
		for i, item := range n.Content {
			v, err := p.value(item, fmt.Sprintf("%s[%d]", path, i), lines)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		return list, nil
	case yaml.ScalarNode:
		return p.scalar(n)
	}
	return nil, p.errorf(n.Line, "aliases are not part of the format; write the value out")
}

func (p *timelineParser) scalar(n *yaml.Node) (any, error) {
	switch n.ShortTag() {
	case "!!str", "!!timestamp": // an unquoted time is a string in every manifest
		return n.Value, nil
	case "!!null":
		return nil, nil
	case "!!bool", "!!int", "!!float":
		var v any
		if err := n.Decode(&v); err != nil {
			return nil, p.errorf(n.Line, "%q cannot be read: %w", n.Value, err)
		}
		return v, nil
	}
	return nil, p.errorf(n.Line, "%s values are not part of the format", n.ShortTag())
}

var (
	yamlLine    = regexp.MustCompile(`^yaml: line (\d+): (.*)`)
	indices     = regexp.MustCompile(`\[\d+\]`)
	unknownPath = regexp.MustCompile(`unknown field "([^"]+)"`)
	typedPath   = regexp.MustCompile(`Go struct field [^.\s]+\.(\S+) of type`)
)

// checkStrictly decodes an object as its own type and refuses fields that the type does not have.
func checkStrictly(data []byte) error {
	decoder := jsonserializer.NewSerializerWithOptions(jsonserializer.DefaultMetaFactory, scheme.Scheme, scheme.Scheme,
		jsonserializer.SerializerOptions{Strict: true})
	_, _, err := decoder.Decode(data, nil, nil)
	return err
}

// lineOf finds the line of the field that err names; otherwise when it names none.
func lineOf(err error, lines map[string]int, otherwise int) int {
	for _, pattern := range []*regexp.Regexp{unknownPath, typedPath} {
		if m := pattern.FindStringSubmatch(err.Error()); m != nil {
			if line, known := lines[m[1]]; known {
				return line
			}
		}
	}
	return otherwise
}
