package shard

import "testing"

func TestShardsAreRead(t *testing.T) {
	for text, want := range map[string]Shard{"": {}, "1/3": {1, 3}, "3/3": {3, 3}, "1/1": {1, 1}} {
		if got, err := Parse(text); err != nil || got != want || got.String() != text {
			t.Errorf("%q: %+v %v", text, got, err)
		}
	}
	for text, want := range map[string]Shard{"index-0/3": {1, 3}, "index-2/3": {3, 3}} {
		if got, err := Parse(text); err != nil || got != want {
			t.Errorf("%q: %+v %v", text, got, err)
		}
	}
	for _, text := range []string{"3", "0/3", "4/3", "1/0", "a/b", "1/3/5", "-1/3", "1/101", "1/3 ", "index-3/3", "index--1/3", "index-/3"} {
		if got, err := Parse(text); err == nil {
			t.Errorf("%q is accepted as %+v", text, got)
		}
	}
}
