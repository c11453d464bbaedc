package scenarios

import (
	"slices"
	"testing"
)

// Every key of a scenario is its own, comes with lanes, or belongs to every scenario: so the three lists together are complete.
func TestListsOfKeysAreComplete(t *testing.T) {
	var shared []Parameter
	for _, k := range LaneKeys() {
		shared = append(shared, k.Parameter)
	}
	shared = append(shared, Common()...)
	for _, s := range All() {
		for _, p := range s.AllParameters() {
			if !p.among(s.Parameters) && !p.among(shared) {
				t.Errorf("no list has the key %s of %s", p.Key, s.Name)
			}
		}
	}
	if own := rollout().Parameters; closing.among(own) || !closing.among(shared) {
		t.Error("close is a key of rollout itself, or of no list")
	}
}

// A scenario with lanes is listed for exactly the keys that it lacks.
func TestLaneKeysNameTheScenariosWithoutThem(t *testing.T) {
	lacking := 0
	for _, k := range LaneKeys() {
		for _, s := range All() {
			if !Lanes.among(s.Parameters) {
				continue
			}
			if has, listed := k.among(s.AllParameters()), slices.Contains(k.Without, s.Name); has == listed {
				t.Errorf("%s has the key %s: %v; it is listed as without it: %v", s.Name, k.Key, has, listed)
			}
			if slices.Contains(k.Without, s.Name) {
				lacking++
			}
		}
	}
	if lacking == 0 {
		t.Error("every scenario with lanes has every key; drain has no target")
	}
}
