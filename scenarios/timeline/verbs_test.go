package timeline

import "testing"

// Each verb is performed, but for the lines `lane`, and has a check of its object where it has one.
func TestEveryVerbIsComplete(t *testing.T) {
	for name, v := range verbs {
		if (v.do == nil) != (name == laneStart) {
			t.Errorf("%q is performed: %t", name, v.do != nil)
		}
		if v.object.absent == (v.object.check != nil) {
			t.Errorf("the object of %q is not checked", name)
		}
		for _, k := range v.keys {
			if k.name == "" || k.check == nil {
				t.Errorf("%q has the key %+v", name, k)
			}
		}
	}
	if err := (Step{Verb: laneStart}).Perform(t.Context(), nil); err == nil {
		t.Error("a lane was started by a step")
	}
}
