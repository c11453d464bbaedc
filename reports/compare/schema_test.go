package compare

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	"github.com/hitless/hitless/internal/testfiles"
	"github.com/hitless/hitless/record"
)

func TestComparisonsFollowTheirSchema(t *testing.T) {
	stuck := 1
	c := compared(t, Options{Mixed: true, Budget: &record.Budget{Dropped: 3}}, lost("a", 0, 0, 0, 1), lost("b", 5, 60, 7, 8).failing(0, "misrouted", "pod exited"))
	c.Subjects[1].Runs[0].NotFollowed = &stuck
	for _, command := range []string{"", "hitless compare rollout"} {
		c.Command = command
		var b bytes.Buffer
		if err := WriteJSON(&b, c); err != nil {
			t.Fatal(err)
		}
		if err := testfiles.ValidateJSON(t, Schema, b.Bytes()); err != nil {
			t.Errorf("the comparison breaks its schema: %v", err)
		}
		for _, broken := range [][2]string{{`"verdict"`, `"verdikt"`}, {`"seed": 1`, `"seed": "1"`}, {`"more"`, `"mores"`}, {`"worse"`, `"worst"`}} {
			if testfiles.ValidateJSON(t, Schema, bytes.Replace(b.Bytes(), []byte(broken[0]), []byte(broken[1]), 1)) == nil {
				t.Errorf("%s for %s was accepted", broken[1], broken[0])
			}
		}
	}
}

// A field of Comparison that the schema lacks fails this test.
func TestTheSchemaHasEachFieldAndNoOther(t *testing.T) {
	var root map[string]any
	if err := json.Unmarshal(Schema, &root); err != nil {
		t.Fatal(err)
	}
	testfiles.SameFields(t, "comparison", root, root, reflect.TypeFor[Comparison]())
}
