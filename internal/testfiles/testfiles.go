// Package testfiles helps tests with files, such as golden files, schemas and pages in a browser, and with addresses of loopback.
package testfiles

import (
	"bytes"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

var update = flag.Bool("update", false, "write the golden files instead of comparing with them")

func Golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v (go test ./reports -update writes it)", err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s changed (-golden +now; go test ./reports -update accepts it):\n%s", name, diff)
	}
}

func Read(t testing.TB, dir string, names ...string) [][]byte {
	t.Helper()
	var all [][]byte
	for _, name := range names {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, data)
	}
	return all
}

func Write(t testing.TB, dir, name string, data []byte) string {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// ValidateJSON checks a document against a schema, and the schema against the rules for schemas.
func ValidateJSON(t testing.TB, schema, document []byte) error {
	t.Helper()
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("schema.json", parsed); err != nil {
		t.Fatal(err)
	}
	compiled, err := compiler.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(document))
	if err != nil {
		t.Fatal(err)
	}
	return compiled.Validate(value)
}

// SameFields compares the fields of a type, and of the types within it, with the properties of its schema.
func SameFields(t *testing.T, at string, root, schema map[string]any, of reflect.Type) {
	t.Helper()
	if ref, ok := schema["$ref"].(string); ok {
		schema = Inner(root, "$defs", strings.TrimPrefix(ref, "#/$defs/"))
	}
	switch of.Kind() {
	case reflect.Pointer:
		SameFields(t, at, root, schema, of.Elem())
	case reflect.Slice:
		SameFields(t, at+"[]", root, Inner(schema, "items"), of.Elem())
	case reflect.Struct:
		fields := map[string]reflect.Type{}
		var always []string
		for _, f := range reflect.VisibleFields(of) {
			if f.Anonymous {
				continue
			}
			tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			fields[tag] = f.Type
			if options != "omitempty" {
				always = append(always, tag)
			}
		}
		properties := Inner(schema, "properties")
		if diff := cmp.Diff(slices.Sorted(maps.Keys(fields)), slices.Sorted(maps.Keys(properties))); diff != "" {
			t.Errorf("%s: fields (-type +schema):\n%s", at, diff)
			return
		}
		if diff := cmp.Diff(slices.Sorted(slices.Values(always)), required(schema)); diff != "" {
			t.Errorf("%s: required fields (-type +schema):\n%s", at, diff)
		}
		if schema["additionalProperties"] != false {
			t.Errorf("%s: the schema allows unknown fields", at)
		}
		for name, typ := range fields {
			SameFields(t, at+"."+name, root, Inner(properties, name), typ)
		}
	}
}

func required(schema map[string]any) []string {
	var names []string
	list, _ := schema["required"].([]any) // absent where no field is
	for _, name := range list {
		names = append(names, name.(string))
	}
	slices.Sort(names)
	return names
}

// Inner walks down objects; what is missing is empty.
func Inner(object map[string]any, path ...string) map[string]any {
	for _, name := range path {
		object, _ = object[name].(map[string]any)
	}
	return object
}

var (
	embedded = regexp.MustCompile(`(?s)<(style|script)[^>]*>.*?</(style|script)>`)
	shapes   = regexp.MustCompile(`<(rect|path|line|pattern|defs|/pattern|/defs|/rect)[^>]*>`)
	numbers  = regexp.MustCompile(` (x|y|dx|dy|x1|x2|y1|y2|width|height|viewBox)="[^"]*"`)
)

// Outline is the structure and the text of a page, without drawings, style and script.
func Outline(page string) string {
	page = embedded.ReplaceAllString(page, "<$1/>")
	page = shapes.ReplaceAllString(page, "")
	page = numbers.ReplaceAllString(page, "")
	page = strings.NewReplacer("<tr", "\n<tr", "<text", "\n<text", "<title", "\n<title").Replace(page)
	return regexp.MustCompile(`\n\s*\n+`).ReplaceAllString(page, "\n")
}
