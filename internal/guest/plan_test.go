//go:build linux

package guest

import (
	"testing"

	"github.com/hitless/hitless/lab/subject"
	"github.com/hitless/hitless/record"
)

// A guest that began with the base of a plan goes on with that plan, and with no plan of another family.
func TestAPlanFollowsItsBase(t *testing.T) {
	plan := func(f record.Family) Plan {
		params, err := find(t, "rollout").Fill(map[string]string{"family": string(f)})
		if err != nil {
			t.Fatal(err)
		}
		return Plan{Scenario: "rollout", ControlPlane: "replay", Nodes: 3, Parameters: params}
	}
	families := []record.Family{record.IPv4, record.IPv6, record.DualStack}
	for _, begun := range families {
		for _, asked := range families {
			err := plan(asked).follows(plan(begun).Base())
			if (err == nil) != (begun == asked) {
				t.Errorf("a guest of %s goes on with %s: %v", begun, asked, err)
			}
		}
	}
}

// The objects of a subject are in the snapshot, so a guest that has created them does not go on with a subject that has others.
func TestAGuestKeepsItsObjects(t *testing.T) {
	plan := func(manifests ...string) Plan {
		p := Plan{Scenario: "rollout", ControlPlane: "replay", Nodes: 3, Exec: &subject.Exec{}}
		for _, m := range manifests {
			p.Exec.Objects = append(p.Exec.Objects, subject.Manifest{Path: m})
		}
		return p
	}
	with, without := plan("/objects/000-crd.yaml"), plan()
	if err := with.follows(with.Base()); err != nil {
		t.Error(err)
	}
	if with.follows(without.Base()) == nil || without.follows(with.Base()) == nil {
		t.Error("a guest goes on with a subject that has other objects")
	}
}
