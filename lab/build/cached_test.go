package build

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Only what can be used at once is listed: a damaged binary is not.
func TestCachedAll(t *testing.T) {
	b, _ := newBuilder(t, newFakeGo(t))
	list := func() []Target {
		all, err := b.CachedAll(t.Context(), "kube-proxy")
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	if got := list(); len(got) != 0 {
		t.Errorf("an empty cache has %v", got)
	}
	mustBuild(t, b, proxy, etcd)
	old := mustBuild(t, b, oldProxy)[0]
	if diff := cmp.Diff([]Target{oldProxy, proxy}, list()); diff != "" {
		t.Error("oldest first: ", diff)
	}
	if err := os.WriteFile(old.Path, []byte("damaged"), 0o755); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Target{proxy}, list()); diff != "" {
		t.Error("a damaged binary is listed: ", diff)
	}
}
