package analysis

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hitless/hitless/internal/testfiles"
	"github.com/hitless/hitless/record/recordtest"
)

// checkSchema validates a report against schema.json, and decodes it strictly into its type and back.
func checkSchema(t testing.TB, r *Report) {
	t.Helper()
	var b bytes.Buffer
	if err := WriteJSON(&b, r); err != nil {
		t.Fatal(err)
	}
	if err := testfiles.ValidateJSON(t, Schema, b.Bytes()); err != nil {
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

func TestReportsFollowTheirSchema(t *testing.T) {
	for _, o := range []recordtest.Rollout{{Seed: 1, Fallback: true, Rollouts: 2}, {Seed: 1, Rollouts: 2}, {Seed: 1, Rollouts: 1, NoProof: true}} {
		checkSchema(t, reportOf(t, o.Start(o.Lab())))
	}
}

// The check itself can fail: each of these changes breaks the schema.
func TestTheSchemaIsNotEmptyWords(t *testing.T) {
	o := recordtest.Rollout{Seed: 1, Rollouts: 1}
	var b bytes.Buffer
	if err := WriteJSON(&b, reportOf(t, o.Start(o.Lab()))); err != nil {
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
		if testfiles.ValidateJSON(t, Schema, changed) == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

func first(object map[string]any, list string) map[string]any {
	return object[list].([]any)[0].(map[string]any)
}

// A field that is added to a type, and not to the schema, fails here even where no report of the tests fills it.
func TestTheSchemaHasEachFieldAndNoOther(t *testing.T) {
	var root map[string]any
	if err := json.Unmarshal(Schema, &root); err != nil {
		t.Fatal(err)
	}
	testfiles.SameFields(t, "report", root, root, reflect.TypeFor[Report]())
	var event map[string]any
	if err := json.Unmarshal(Schema, &event); err != nil {
		t.Fatal(err)
	}
	event = testfiles.Inner(testfiles.Inner(event, "properties", "events"), "items", "properties")
	var want []any
	for _, k := range EventKinds() {
		want = append(want, string(k))
	}
	if diff := cmp.Diff(want, testfiles.Inner(event, "kind")["enum"]); diff != "" {
		t.Errorf("the kinds of event; run `make docs` (-code +schema):\n%s", diff)
	}
}
