package compare

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	"github.com/hitless/hitless/internal/testfiles"
)

func TestComparisonsFollowTheirSchema(t *testing.T) {
	c, err := New("rollout", []Subject{subject("a", 0, 0, 0, 1), subject("b", 5, 60, 7, 8)})
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"", "hitless compare rollout"} {
		c.Command = command
		var b bytes.Buffer
		if err := WriteJSON(&b, c); err != nil {
			t.Fatal(err)
		}
		if err := testfiles.ValidateJSON(t, Schema, b.Bytes()); err != nil {
			t.Errorf("the comparison breaks its schema: %v", err)
		}
		for _, broken := range [][2]string{{`"verdict"`, `"verdikt"`}, {`"seed": 1`, `"seed": "1"`}, {`"real"`, `"realy"`}} {
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
