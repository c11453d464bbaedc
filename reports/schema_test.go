package reports

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/hitless/hitless/record"
)

// checkSchema validates a report against schema.json, and decodes it strictly into its type and back.
func checkSchema(t testing.TB, r *Report) {
	t.Helper()
	var b bytes.Buffer
	if err := WriteJSON(&b, r); err != nil {
		t.Fatal(err)
	}
	if err := validate(t, Schema, b.Bytes()); err != nil {
		t.Errorf("the report breaks its schema: %v", err)
	}
	decoder := json.NewDecoder(bytes.NewReader(b.Bytes()))
	decoder.DisallowUnknownFields()
	var back Report
	if err := decoder.Decode(&back); err != nil {
		t.Errorf("the report does not decode into its type: %v", err)
	}
	var again bytes.Buffer
	if err := WriteJSON(&again, &back); err != nil || again.String() != b.String() {
		t.Errorf("the report changes when it is written and read (%v)", err)
	}
}

// validate checks a document against a schema, and the schema against the rules for schemas.
func validate(t testing.TB, schema, document []byte) error {
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

func TestReportsFollowTheirSchema(t *testing.T) {
	for _, o := range []rolling{{seed: 1, fallback: true, rollouts: 2}, {seed: 1, rollouts: 2}, {seed: 1, rollouts: 1, noProof: true}} {
		checkSchema(t, o.start(o.lab()).report(t))
	}
}

// The check itself can fail: each of these changes breaks the schema.
func TestTheSchemaIsNotEmptyWords(t *testing.T) {
	o := rolling{seed: 1, rollouts: 1}
	var b bytes.Buffer
	if err := WriteJSON(&b, o.start(o.lab()).report(t)); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(map[string]any){
		"a missing field":        func(r map[string]any) { delete(r, "totals") },
		"an unknown field":       func(r map[string]any) { r["extra"] = 1.0 },
		"an unknown verdict":     func(r map[string]any) { r["verdict"] = "green" },
		"another version":        func(r map[string]any) { r["schemaVersion"] = 2.0 },
		"null for a list":        func(r map[string]any) { r["controls"] = nil },
		"half a connection":      func(r map[string]any) { r["totals"].(map[string]any)["ok"] = 1.5 },
		"a negative time":        func(r map[string]any) { first(r, "events")["at"] = -1.0 },
		"an unknown class":       func(r map[string]any) { first(first(r, "lanes"), "outages")["classes"] = map[string]any{"lost": 1.0} },
		"an outage of successes": func(r map[string]any) { first(first(r, "lanes"), "outages")["classes"] = map[string]any{"ok": 1.0} },
		"a missing inner field":  func(r map[string]any) { delete(first(first(r, "lanes"), "outages"), "lowerMs") },
	} {
		var r map[string]any
		if err := json.Unmarshal(b.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		change(r)
		changed, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if validate(t, Schema, changed) == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

func first(object map[string]any, list string) map[string]any {
	return object[list].([]any)[0].(map[string]any)
}

func TestComparisonsFollowTheirSchema(t *testing.T) {
	c, err := Compare("rollout", []ComparedSubject{subject("a", 0, 0, 0, 1), subject("b", 5, 60, 7, 8)})
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"", "hitless compare rollout"} {
		c.Command = command
		var b bytes.Buffer
		if err := WriteComparisonJSON(&b, c); err != nil {
			t.Fatal(err)
		}
		if err := validate(t, ComparisonSchema, b.Bytes()); err != nil {
			t.Errorf("the comparison breaks its schema: %v", err)
		}
		for _, broken := range [][2]string{{`"verdict"`, `"verdikt"`}, {`"seed": 1`, `"seed": "1"`}, {`"real"`, `"realy"`}} {
			if validate(t, ComparisonSchema, bytes.Replace(b.Bytes(), []byte(broken[0]), []byte(broken[1]), 1)) == nil {
				t.Errorf("%s for %s was accepted", broken[1], broken[0])
			}
		}
	}
}

// A field that is added to a type, and not to the schema, fails here even where no report of the tests fills it.
func TestTheSchemasHaveEachFieldAndNoOther(t *testing.T) {
	for name, c := range map[string]struct {
		schema []byte
		of     any
	}{"report": {Schema, Report{}}, "comparison": {ComparisonSchema, Comparison{}}} {
		var root map[string]any
		if err := json.Unmarshal(c.schema, &root); err != nil {
			t.Fatal(err)
		}
		sameFields(t, name, root, root, reflect.TypeOf(c.of))
	}
	var event map[string]any
	if err := json.Unmarshal(Schema, &event); err != nil {
		t.Fatal(err)
	}
	event = inner(inner(event, "properties", "events"), "items", "properties")
	var want []any
	for _, k := range record.Kinds() {
		if k != record.KindLane && k != record.KindFlows && k != record.KindChoice { // which are not listed as events
			want = append(want, string(k))
		}
	}
	if diff := cmp.Diff(want, inner(event, "kind")["enum"]); diff != "" {
		t.Errorf("the kinds of event (-code +schema):\n%s", diff)
	}
}

// sameFields compares the fields of a type, and of the types within it, with the properties of its schema.
func sameFields(t *testing.T, at string, root, schema map[string]any, of reflect.Type) {
	t.Helper()
	if ref, ok := schema["$ref"].(string); ok {
		schema = inner(root, "$defs", strings.TrimPrefix(ref, "#/$defs/"))
	}
	switch of.Kind() {
	case reflect.Pointer:
		sameFields(t, at, root, schema, of.Elem())
	case reflect.Slice:
		sameFields(t, at+"[]", root, inner(schema, "items"), of.Elem())
	case reflect.Struct:
		fields := map[string]reflect.Type{}
		var always []string
		for i := range of.NumField() {
			tag, options, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
			fields[tag] = of.Field(i).Type
			if options != "omitempty" {
				always = append(always, tag)
			}
		}
		properties := inner(schema, "properties")
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
			sameFields(t, at+"."+name, root, inner(properties, name), typ)
		}
	}
}

func required(schema map[string]any) []string {
	var names []string
	for _, name := range schema["required"].([]any) {
		names = append(names, name.(string))
	}
	slices.Sort(names)
	return names
}

// inner walks down objects; what is missing is empty.
func inner(object map[string]any, path ...string) map[string]any {
	for _, name := range path {
		object, _ = object[name].(map[string]any)
	}
	return object
}
