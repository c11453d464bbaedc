package vm

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"time"
)

func region(t *testing.T, plan string, size int) []byte {
	t.Helper()
	r := make([]byte, size)
	if err := PutPlan(r, []byte(plan)); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRegionReturnsThePlanAndTheFramesInOrder(t *testing.T) {
	r := region(t, "the plan", framesOffset+1<<16)
	if at := GetStop(r); at < 100*365*24*time.Hour {
		t.Errorf("without PutStop the stop time is %s, want later than any run", at)
	}
	PutStop(r, 7*time.Second)
	if at := GetStop(r); at != 7*time.Second {
		t.Errorf("the run stops at %s, want 7s", at)
	}
	plan, err := GetPlan(r)
	if err != nil || string(plan) != "the plan" {
		t.Fatalf("plan %q, %v", plan, err)
	}
	w := NewFrameWriter(r)
	want := []string{"", "one", "twelve bytes", string(bytes.Repeat([]byte{0}, 100))}
	for _, payload := range want {
		if err := w.Write(FrameEvent, []byte(payload)); err != nil {
			t.Fatal(err)
		}
	}
	frames := NewFrameReader(r)
	for i, payload := range want {
		kind, got, err := frames.Next()
		if err != nil || kind != FrameEvent || string(got) != payload {
			t.Fatalf("frame %d: kind %d, %q, %v", i, kind, got, err)
		}
	}
	if _, _, err := frames.Next(); !errors.Is(err, io.EOF) {
		t.Fatalf("after the last frame: %v", err)
	}
}

func TestFullRegionHasSpaceForTheTrailer(t *testing.T) {
	r := region(t, "", framesOffset+1<<14)
	w := NewFrameWriter(r)
	var err error
	for range 100 {
		if err = w.Write(FrameAttempts, make([]byte, 1000)); err != nil {
			break
		}
	}
	if !errors.Is(err, ErrRegionFull) {
		t.Fatalf("a full region gave %v", err)
	}
	if err := w.Write(FrameTrailer, []byte(err.Error())); err != nil {
		t.Fatalf("no space for the trailer: %v", err)
	}
}

func TestDamageIsDetected(t *testing.T) {
	for name, at := range map[string]int{"payload": framesOffset + frameHeader, "number": framesOffset + 4, "kind": framesOffset + 8} {
		r := region(t, "", framesOffset+1<<16)
		if err := NewFrameWriter(r).Write(FrameEvent, []byte("payload")); err != nil {
			t.Fatal(err)
		}
		r[at] ^= 1
		if _, _, err := NewFrameReader(r).Next(); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("damage to the %s was not detected: %v", name, err)
		}
	}
	r := region(t, "plan", framesOffset+1<<16)
	r[planOffset] ^= 1
	if _, err := GetPlan(r); err == nil {
		t.Error("damage to the plan was not detected")
	}
}

// A file keeps its name and content, which may have NULs; a payload without a name is refused.
func TestFilesInFrames(t *testing.T) {
	region := make([]byte, RegionSize)
	w := NewFrameWriter(region)
	files := map[string]string{"logs/a.log": "a\x00b\n", "empty": ""}
	for name, content := range files {
		if err := w.WriteFile(name, []byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	r := NewFrameReader(region)
	for range files {
		kind, payload, err := r.Next()
		if err != nil || kind != FrameFile {
			t.Fatal(kind, err)
		}
		name, content, err := ParseFile(payload)
		if want, has := files[name]; err != nil || !has || string(content) != want {
			t.Errorf("the file %s has %q: %v", name, content, err)
		}
	}
	if _, _, err := ParseFile([]byte("no name")); err == nil {
		t.Error("a file without a name is no error")
	}
}
