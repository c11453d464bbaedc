package build

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// What is not in the cache takes time: more for more modules, not twice for two programs of one.
func TestExpect(t *testing.T) {
	f := newFakeGo(t)
	b, _ := newBuilder(t, f)
	expect := func(targets ...Target) Expected {
		t.Helper()
		e, err := b.Expect(t.Context(), targets...)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	all := expect(proxy, apiserver, etcd)
	if diff := cmp.Diff([]Target{proxy, apiserver, etcd}, all.Missing); diff != "" || all.Takes <= 0 {
		t.Errorf("an empty cache: %+v %s", all, diff)
	}
	if both, one := expect(proxy, apiserver), expect(apiserver); both.Takes != one.Takes || all.Takes <= both.Takes {
		t.Errorf("two programs of one module take %s, one %s, and all three %s", both.Takes, one.Takes, all.Takes)
	}
	if older := expect(proxy, oldProxy); older.Takes != 2*expect(proxy).Takes {
		t.Errorf("two versions take %s, one %s", older.Takes, expect(proxy).Takes)
	}
	if len(f.downloads)+len(f.jobs) > 0 {
		t.Errorf("%d downloads and %d compilations", len(f.downloads), len(f.jobs))
	}
	mustBuild(t, b, proxy, etcd)
	if diff := cmp.Diff(expect(apiserver), expect(proxy, apiserver, etcd)); diff != "" {
		t.Error("the cache has the other two: ", diff)
	}
	if rest := expect(proxy, etcd); len(rest.Missing) > 0 || rest.Takes != 0 {
		t.Errorf("the cache has both: %+v", rest)
	}
	b.Programs = Released
	if e := expect(proxy); len(e.Missing) != 1 || e.Takes != 0 {
		t.Errorf("a download: %+v", e)
	}
	if _, err := b.Expect(t.Context(), Target{"unknown", "v1.0.0"}); err == nil {
		t.Error("an unknown program has an expectation")
	}
}

func TestEachProgramHasASize(t *testing.T) {
	d, err := embedded()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range d.programs {
		if packagesOf[p.Name] == 0 {
			t.Errorf("the number of packages of %s is not known", p.Name)
		}
	}
}

// The rest is told once enough packages have begun.
func TestProgressOfCompilation(t *testing.T) {
	early, later := compiling(3, 1000, 10*time.Second), compiling(250, 1000, 30*time.Second)
	if early.Left != 0 || strings.Contains(early.Text, "left") {
		t.Errorf("after three packages: %+v", early)
	}
	if later.Left != 90*time.Second || !strings.Contains(later.Text, "250 of 1000 packages") || !strings.Contains(later.Text, "90 s left") {
		t.Errorf("after a quarter: %+v", later)
	}
	if done := compiling(1000, 1000, time.Minute); done.Left != 0 {
		t.Errorf("all have begun: %+v", done)
	}
}
