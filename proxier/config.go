package proxier

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/hitless/hitless/internal/input"
)

// commandLineOnly are flags that select an action, which a forgotten file must not trigger.
var commandLineOnly = []string{"config", "cleanup", "init-only", "help"}

// readConfig sets flags to the values of a YAML file, except for flags that are already set. Errors name the file and
// the line. An empty path and a file without keys are ignored.
func readConfig(path string, lookup func(name string) *pflag.Flag) error {
	if path == "" {
		return nil
	}
	text, err := input.Read(context.Background(), path, input.TextBytes)
	if err != nil {
		return fmt.Errorf("reading --config: %w", err)
	}
	root, err := input.Document(path, text)
	switch {
	case errors.Is(err, input.ErrEmpty):
		return nil
	case err != nil:
		return fmt.Errorf("reading --config: %w", err)
	}
	if root.Kind != yaml.MappingNode {
		return fmt.Errorf("%s:%d: not a mapping of keys to values, such as ipvs-scheduler: rr", path, root.Line)
	}
	for i := 0; i < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		if err := setFlag(key.Value, value, lookup); err != nil {
			return fmt.Errorf("%s:%d: %w", path, key.Line, err)
		}
	}
	return nil
}

func setFlag(name string, value *yaml.Node, lookup func(name string) *pflag.Flag) error {
	flag := lookup(name)
	switch {
	case slices.Contains(commandLineOnly, name):
		return fmt.Errorf("key %q is allowed on the command line only", name)
	case flag == nil:
		return fmt.Errorf("unknown key %q; the keys are the names of the flags that --help lists", name)
	case flag.Changed:
		return nil
	}
	list, many := flag.Value.(pflag.SliceValue)
	switch {
	case value.Kind == yaml.SequenceNode && many:
		words := []string{}
		for _, item := range value.Content {
			if item.Kind != yaml.ScalarNode || item.Tag == "!!null" {
				return fmt.Errorf("key %q: line %d is not a plain value", name, item.Line)
			}
			words = append(words, item.Value)
		}
		return list.Replace(words)
	case value.Kind != yaml.ScalarNode || value.Tag == "!!null":
		return fmt.Errorf("key %q does not have a plain value", name)
	case flag.Value.Type() == "bool" && value.Tag != "!!bool":
		return fmt.Errorf("key %q is %q; it must be true or false", name, value.Value)
	}
	if err := flag.Value.Set(value.Value); err != nil {
		return fmt.Errorf("key %q is %q: %w", name, value.Value, err)
	}
	return nil
}
