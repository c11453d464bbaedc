package input

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

var yamlLine = regexp.MustCompile(`^yaml: line (\d+): (.*)$`)

// ErrEmpty is the error of a text without a document.
var ErrEmpty = errors.New("the file is empty")

// Document returns the root of the only YAML document of a text. Errors have the form FILE:LINE: TEXT. An empty text, a second
// document, and a key that a mapping has twice are errors.
func Document(file string, text []byte) (*yaml.Node, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var doc, more yaml.Node
	err := decoder.Decode(&doc)
	if errors.Is(err, io.EOF) {
		return nil, Errorf(file, 1, "%w", ErrEmpty)
	}
	if err == nil {
		if err = decoder.Decode(&more); err == nil {
			return nil, Errorf(file, more.Line, "a second document; the file must have one")
		}
	}
	if !errors.Is(err, io.EOF) {
		if m := yamlLine.FindStringSubmatch(err.Error()); m != nil {
			return nil, fmt.Errorf("%s:%s: this is not YAML: %s", file, m[1], m[2])
		}
		return nil, fmt.Errorf("%s: this is not YAML: %s", file, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	root := doc.Content[0]
	return root, unique(file, root)
}

// Errorf is an error about a line of a file.
func Errorf(file string, line int, format string, args ...any) error {
	return fmt.Errorf("%s:%d: %w", file, line, fmt.Errorf(format, args...))
}

// unique refuses repeated keys in all mappings.
func unique(file string, n *yaml.Node) error {
	lines := map[string]int{}
	for i, child := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 {
			if before := lines[child.Value]; before > 0 {
				return Errorf(file, child.Line, "%s is given twice, first in line %d", child.Value, before)
			}
			lines[child.Value] = child.Line
		}
		if err := unique(file, child); err != nil {
			return err
		}
	}
	return nil
}

// Fields calls the function of each key of a mapping with its value, and returns the first error. A key without a function is
// an error that names the known keys.
func Fields(file string, n *yaml.Node, fields map[string]func(value *yaml.Node) error) error {
	names := strings.Join(slices.Sorted(maps.Keys(fields)), ", ")
	if n.Kind != yaml.MappingNode {
		return Errorf(file, n.Line, "want key: value lines; the keys are %s", names)
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		parse, known := fields[key.Value]
		if key.Kind != yaml.ScalarNode || !known {
			return Errorf(file, key.Line, "unknown key %q; the keys are %s", key.Value, names)
		}
		if err := parse(value); err != nil {
			return Errorf(file, value.Line, "%s: %w", key.Value, err)
		}
	}
	return nil
}

// Count returns a function for Fields that reads a whole number of 0 or more.
func Count(to *int) func(*yaml.Node) error {
	return func(n *yaml.Node) error {
		v, err := strconv.Atoi(n.Value)
		if n.Kind != yaml.ScalarNode || err != nil || v < 0 {
			return fmt.Errorf("%q is not a whole number of 0 or more", n.Value)
		}
		*to = v
		return nil
	}
}

// Number returns a function for Fields that reads a number from least to most.
func Number(to **float64, least, most float64) func(*yaml.Node) error {
	return func(n *yaml.Node) error {
		v, err := strconv.ParseFloat(n.Value, 64)
		if n.Kind != yaml.ScalarNode || err != nil || !(v >= least && v <= most) {
			return fmt.Errorf("%q is not a number from %g to %g", n.Value, least, most)
		}
		*to = &v
		return nil
	}
}
