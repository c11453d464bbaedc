package record

import (
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

// host.json of a run says when and with what it was made. A folder without one says nothing, and one that is damaged is an error.
func TestWhenAndWithWhatARunWasMade(t *testing.T) {
	in := func(text string) fstest.MapFS { return fstest.MapFS{HostFile: {Data: []byte(text)}} }
	made, err := MadeIn(in(`{"command": ["x"], "started": "2026-11-27T15:23:43Z", "programs": [{"program": "etcd@v3", "source": "built", "sha256": "ab"}], "toolPackages": ["a_1", "b_2"]}`))
	want := &Made{"2026-11-27T15:23:43Z", []MadeProgram{{"etcd@v3", "ab"}}, ToolsDigest([]string{"a_1", "b_2"})}
	if diff := cmp.Diff(want, made); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if a, b := ToolsDigest([]string{"a_1", "b_2"}), ToolsDigest([]string{"a_1", "b_3"}); a == b || len(a) != 64 {
		t.Errorf("another package gives the digest %s, as before %s", b, a)
	}
	if made, err := MadeIn(in(`{"started": "2026-11-27T15:23:43Z"}`)); err != nil || made.Tools != NoTools || made.Programs == nil {
		t.Errorf("without tools and programs: %+v, %v", made, err)
	}
	if made, err := MadeIn(fstest.MapFS{}); made != nil || err != nil {
		t.Errorf("without a file: %+v, %v", made, err)
	}
	if _, err := MadeIn(in("{")); err == nil {
		t.Error("a damaged file is no error")
	}
}
