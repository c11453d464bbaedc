package compile

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// bench is a guest and a host with a stand-in for clang: it writes its source and its headers, or with -E the source without comments. As
// clang's, its objects depend on comments unless their debug information is old.
type bench struct {
	service *Service
	guest   string // directory in place of the guest's root
	packed  string
	calls   string // file with a line for each call of the compiler
}

func newBench(t *testing.T) *bench {
	t.Helper()
	dir := t.TempDir()
	b := &bench{guest: filepath.Join(dir, "guest"), packed: filepath.Join(dir, "packed"), calls: filepath.Join(dir, "calls")}
	compiler := filepath.Join(dir, "clang")
	script := `#!/bin/sh
echo "$@" >> ` + b.calls + `
for a in "$@"; do
  case "$a" in -I*) inc="${a#-I}";; *.c) src="$a";; -E) pre=1;; -fdebug-default-version=4) old=1;; esac
done
grep -q broken "$src" && { echo "$src: error: broken" >&2; exit 1; }
[ -n "$pre" ] || echo object
if [ -n "$pre$old" ]; then grep -hv '^//' "$src" "$inc"/*.h; else cat "$src" "$inc"/*.h; fi
`
	if err := os.WriteFile(compiler, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	source := filepath.Join(dir, "module", "p.c")
	b.write(t, source, "int p;\n")
	b.write(t, filepath.Join(b.guest, "p.c"), "int p;\n")
	b.write(t, filepath.Join(b.packed, b.guest, "p.c"), "int p;\n")
	b.header(t, "int h;\n")
	b.service = &Service{Compiler: []string{"/bin/sh", compiler}, Digest: "d", Sources: map[string]string{filepath.Join(b.guest, "p.c"): source}, Dir: filepath.Join(dir, "objects")}
	return b
}

func (b *bench) write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (b *bench) header(t *testing.T, text string) {
	b.write(t, filepath.Join(b.guest, "state", "node.h"), text)
}

// compile runs the guest's program.
func (b *bench) compile(t *testing.T, more ...string) (out, msg string, exit int, sent []string) {
	t.Helper()
	var o, e bytes.Buffer
	call := func(request []byte) ([]byte, error) {
		r, err := ParseRequest(request)
		for _, f := range r.Files {
			sent = append(sent, filepath.Base(f.Path))
		}
		if err != nil {
			return nil, err
		}
		return b.service.Answer(t.Context(), request)
	}
	args := append([]string{"-I" + filepath.Join(b.guest, "state"), "-O2", "-c", filepath.Join(b.guest, "p.c"), "-o", "-"}, more...)
	exit = Main(args, b.packed, call, &o, &e)
	return o.String(), e.String(), exit, sent
}

func (b *bench) called(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile(b.calls)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(text)) {
		if !strings.HasSuffix(line, " -E\n") {
			n++
		}
	}
	return n
}

// The host gets what differs from the packed files, and compiles each preprocessed source with its flags once.
func TestCompileOnTheHostOnce(t *testing.T) {
	b := newBench(t)
	out, msg, exit, sent := b.compile(t)
	if out != "object\nint p;\nint h;\n" || msg != "" || exit != 0 || !slices.Equal(sent, []string{"node.h"}) {
		t.Fatalf("%q, %q, exit %d, sent %q", out, msg, exit, sent)
	}
	for i, c := range []struct {
		header string
		args   []string
		calls  int
	}{
		{"int h;\n", nil, 1},
		{"// another comment\nint h;\n", nil, 1},
		{"int h;\n", []string{"-DX=1"}, 2},
		{"int other;\n", nil, 3},
		{"int h;\n", nil, 3},
	} {
		b.header(t, c.header)
		if out, msg, exit, _ := b.compile(t, c.args...); exit != 0 || msg != "" || !strings.HasPrefix(out, "object\n") || b.called(t) != c.calls {
			t.Errorf("call %d: %q, %q, exit %d, %d compilations instead of %d", i, out, msg, exit, b.called(t), c.calls)
		}
	}
	if made, kept := b.service.Counts(); made != 3 || kept != 3 {
		t.Errorf("%d compiled, %d from the cache", made, kept)
	}
}

// An object is the same whether the cache has it or not: a run must not depend on what others have compiled.
func TestObjectsDoNotDependOnComments(t *testing.T) {
	var objects []string
	for _, header := range []string{"int h;\n", "// another comment\nint h;\n"} {
		b := newBench(t)
		b.header(t, header)
		out, _, _, _ := b.compile(t)
		objects = append(objects, strings.ReplaceAll(out, b.guest, ""))
	}
	if objects[0] != objects[1] {
		t.Errorf("%q and %q differ by a comment of a header", objects[0], objects[1])
	}
}

// A damaged object is compiled again, and the check of the cache finds it.
func TestADamagedObject(t *testing.T) {
	b := newBench(t)
	b.compile(t)
	all, err := filepath.Glob(filepath.Join(b.service.Dir, "*.o"))
	if err != nil || len(all) != 1 {
		t.Fatalf("%q, %v", all, err)
	}
	data, err := os.ReadFile(all[0])
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)-1] ^= 1
	b.write(t, all[0], string(data))
	entries, err := Entries(b.service.Dir)
	if err != nil || len(entries) != 1 {
		t.Fatalf("%v, %v", entries, err)
	}
	if err := entries[0].Check(t.Context(), func(int) {}); err == nil {
		t.Error("the check finds nothing")
	}
	if out, _, _, _ := b.compile(t); out != "object\nint p;\nint h;\n" || b.called(t) != 2 {
		t.Errorf("%q after %d compilations", out, b.called(t))
	}
}

// An error of the compiler reaches the guest with the guest's paths, and nothing is kept.
func TestACompilerError(t *testing.T) {
	b := newBench(t)
	b.write(t, filepath.Join(b.guest, "p.c"), "broken\n")
	_, msg, exit, _ := b.compile(t)
	if want := filepath.Join(b.guest, "p.c") + ": error: broken\n"; exit != 1 || msg != want {
		t.Errorf("exit %d, %q instead of %q", exit, msg, want)
	}
	if entries, err := Entries(b.service.Dir); err != nil || len(entries) != 0 {
		t.Errorf("%v, %v", entries, err)
	}
}

// A guest cannot make the host's compiler read or write other files.
func TestArgumentsThatAreRefused(t *testing.T) {
	for _, bad := range [][]string{{"-o", "/etc/passwd"}, {"-fplugin=/x.so"}, {"-fpass-plugin=/x.so"}, {"@/etc/passwd"}, {"-include", "/etc/passwd"}, {"--config=/x"}, {"-Wp,-MD,/x"}, {"-MF/x"},
		{"-Xclang"}, {"/etc/passwd"}, {"-o"}} {
		if err := checkArgs(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
	good := strings.Fields("-I/var/run/cilium/state/globals -I/var/lib/cilium/bpf -g -O2 --target=bpf -std=gnu89 -nostdinc -D__NR_CPUS__=1 -Wall -Wno-address-of-packed-member -mcpu=v3 -ftrap-function=__undefined_trap -c /var/lib/cilium/bpf/bpf_lxc.c -o -")
	if err := checkArgs(good); err != nil {
		t.Error(err)
	}
	if err := checkArgs([]string{"--version"}); err != nil {
		t.Error(err)
	}
	if _, err := ParseRequest([]byte(`{"Args":["-c"],"Files":[{"Path":"/a/../../etc/x.h","Size":0}]}` + "\n")); err == nil {
		t.Error("a path that leaves the root is accepted")
	}
}
