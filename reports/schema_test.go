package reports

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// checkSchema validates a report against schema.json, and decodes it strictly into its type and back.
func checkSchema(t testing.TB, r *Report) {
	t.Helper()
	var b bytes.Buffer
	if err := WriteJSON(&b, r); err != nil {
		t.Fatal(err)
	}
	var value any
	if err := json.Unmarshal(b.Bytes(), &value); err != nil {
		t.Fatal(err)
	}
	if faults := validate(schema(t), schema(t), value, "report"); len(faults) > 0 {
		t.Errorf("the report breaks its schema:\n%s", strings.Join(faults, "\n"))
	}
	decoder := json.NewDecoder(bytes.NewReader(b.Bytes()))
	decoder.DisallowUnknownFields()
	var back Report
	if err := decoder.Decode(&back); err != nil {
		t.Errorf("the report does not decode into its type: %v", err)
	}
	if !reflect.DeepEqual(*r, back) {
		t.Error("the report changes when it is written and read")
	}
}

func schema(t testing.TB) map[string]any {
	t.Helper()
	var s map[string]any
	if err := json.Unmarshal(Schema, &s); err != nil {
		t.Fatalf("reading schema.json: %v", err)
	}
	return s
}

// validate knows the words of JSON Schema that schema.json uses, and complains about any other.
func validate(root, schema map[string]any, value any, at string) []string {
	var faults []string
	fault := func(format string, args ...any) { faults = append(faults, at+": "+fmt.Sprintf(format, args...)) }
	for _, word := range slices.Sorted(maps.Keys(schema)) {
		limit := schema[word]
		switch word {
		case "$schema", "$id", "$defs", "title", "description", "additionalProperties":
		case "$ref":
			name := strings.TrimPrefix(limit.(string), "#/$defs/")
			faults = append(faults, validate(root, root["$defs"].(map[string]any)[name].(map[string]any), value, at)...)
		case "const":
			if !reflect.DeepEqual(limit, value) {
				fault("%v is not %v", value, limit)
			}
		case "enum":
			if !slices.Contains(limit.([]any), value) {
				fault("%v is none of %v", value, limit)
			}
		case "type":
			if !slices.ContainsFunc(typesOf(limit), func(name string) bool { return hasType(name, value) }) {
				fault("%v is no %v", value, limit)
			}
		case "minimum", "maximum":
			if n, ok := value.(float64); ok && (word == "minimum" && n < limit.(float64) || word == "maximum" && n > limit.(float64)) {
				fault("%v is beyond the %s %v", n, word, limit)
			}
		case "required":
			object, _ := value.(map[string]any)
			for _, name := range limit.([]any) {
				if _, there := object[name.(string)]; !there {
					fault("%v is missing", name)
				}
			}
		case "properties":
			object, _ := value.(map[string]any)
			known := limit.(map[string]any)
			for _, name := range slices.Sorted(maps.Keys(object)) {
				if inner, ok := known[name].(map[string]any); ok {
					faults = append(faults, validate(root, inner, object[name], at+"."+name)...)
				} else if schema["additionalProperties"] == false {
					fault("%s is not in the schema", name)
				}
			}
		case "items":
			list, _ := value.([]any)
			for i, item := range list {
				faults = append(faults, validate(root, limit.(map[string]any), item, fmt.Sprintf("%s[%d]", at, i))...)
			}
		default:
			fault("the schema uses %q, which this check does not know", word)
		}
	}
	return faults
}

func typesOf(limit any) []string {
	if name, ok := limit.(string); ok {
		return []string{name}
	}
	var names []string
	for _, name := range limit.([]any) {
		names = append(names, name.(string))
	}
	return names
}

func hasType(name string, value any) bool {
	switch v := value.(type) {
	case nil:
		return name == "null"
	case string:
		return name == "string"
	case bool:
		return name == "boolean"
	case float64:
		return name == "number" || (name == "integer" && v == math.Trunc(v))
	case []any:
		return name == "array"
	case map[string]any:
		return name == "object"
	}
	return false
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
		if len(validate(schema(t), schema(t), r, "report")) == 0 {
			t.Errorf("%s was accepted", name)
		}
	}
}

func first(object map[string]any, list string) map[string]any {
	return object[list].([]any)[0].(map[string]any)
}
