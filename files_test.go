package hitless_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// ownFiles are the packages that read files without package input, by the kind of the files. None is named by a user: a user's files
// are read by input.Read, input.Open and input.Copy, which refuse pipes, devices and files without a bound.
var ownFiles = map[string][]string{
	"the record and the results of a run": {"record", "reports", "internal/run", "internal/recording"},
	"the cache, locks, builds and tools":  {"internal/cache", "lab/build", "lab/compile", "lab/debian", "lab/tools"},
	"logs, pipes and images of the lab":   {"lab/vm", "lab/host", "lab/procs", "lab/balancer", "lab/subject/failing"},
	"the kernel's, by a name that is put together": {"observers", "probes", "probes/watch", "proxier/linux",
		"internal/guest", "internal/bench"},
	"volumes, images and logs of pods":        {"lab/container", "lab/kubelet"},
	"the running program":                     {"cmd/hitless", "internal/version"},
	"an example's own files in the guest":     {"docs/examples/exec-nftables"},
	"files of this repository":                {"hack/docs", "hack/modproxy", "hack/scripttest", "deploy/image", "internal/testfiles"},
	"what the user names: it is the one rule": {"internal/input"},
}

// opens reports whether a call reads a file whose name is not a constant path of the kernel.
func opens(call *ast.CallExpr) bool {
	f, is := call.Fun.(*ast.SelectorExpr)
	if !is || len(call.Args) == 0 {
		return false
	}
	if name, is := f.X.(*ast.Ident); !is || name.Name != "os" || !slices.Contains([]string{"ReadFile", "Open", "OpenFile"}, f.Sel.Name) {
		return false
	}
	kernels := false
	ast.Inspect(call.Args[0], func(n ast.Node) bool {
		if lit, is := n.(*ast.BasicLit); is && lit.Kind == token.STRING {
			text, _ := strconv.Unquote(lit.Value)
			kernels = kernels || strings.HasPrefix(text, "/proc/") || strings.HasPrefix(text, "/sys/") || strings.HasPrefix(text, "/dev/")
		}
		return true
	})
	return !kernels
}

// No package but those of ownFiles opens a file by itself, and each of them still does.
func TestUserFilesAreReadByPackageInput(t *testing.T) {
	unused := map[string]bool{}
	for _, all := range ownFiles {
		for _, dir := range all {
			unused[dir] = true
		}
	}
	allowed := maps.Clone(unused)
	for path := range importsOfFiles(t) {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.ToSlash(filepath.Dir(path))
		ast.Inspect(f, func(n ast.Node) bool {
			if call, is := n.(*ast.CallExpr); is && opens(call) {
				delete(unused, dir)
				if !allowed[dir] {
					t.Errorf("%s opens a file without package input", set.Position(call.Pos()))
				}
			}
			return true
		})
	}
	for dir := range unused {
		t.Errorf("%s opens no file by itself any more: take it out of ownFiles", dir)
	}
}

// The check itself can fail.
func TestOpensIsSeen(t *testing.T) {
	for text, want := range map[string]bool{`os.ReadFile(name)`: true, `os.Open(filepath.Join(dir, "x"))`: true, `os.OpenFile(name, 0, 0)`: true,
		`os.ReadFile("/proc/meminfo")`: false, `os.ReadFile(fmt.Sprintf("/proc/%d/stat", 1))`: false, `os.Remove(name)`: false, `io.Open(name)`: false} {
		e, err := parser.ParseExpr(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := opens(e.(*ast.CallExpr)); got != want {
			t.Errorf("%s: %t, want %t", text, got, want)
		}
	}
}
