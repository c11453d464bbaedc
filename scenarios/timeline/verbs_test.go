package timeline

import "testing"

// Each verb except `lane start` has a function that performs it, and each object has a check.
func TestEveryVerbIsComplete(t *testing.T) {
	for name, v := range verbs {
		if (v.perform == nil) != (name == laneStart) {
			t.Errorf("%q can be performed: %t", name, v.perform != nil)
		}
		if v.object.absent == (v.object.check != nil) {
			t.Errorf("the object of %q has no check", name)
		}
		for _, k := range v.keys {
			if k.name == "" || k.check == nil {
				t.Errorf("%q has an incomplete key: %+v", name, k)
			}
		}
	}
	if err := (Step{Verb: laneStart}).Perform(t.Context(), nil); err == nil {
		t.Error("a step with verb `lane start` was performed")
	}
}
