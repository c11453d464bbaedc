package vm

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hitless/hitless/internal/testfiles"
)

const kernelID = "linux-image-6.1.0-cloud-amd64_6.1.1"

// fakePackage unpacks a kernel whose files are texts, and counts its calls.
func fakePackage(t *testing.T, calls *int) func(string) (string, error) {
	return func(work string) (string, error) {
		*calls++
		root := filepath.Join(work, "root")
		for name, text := range map[string]string{"boot/vmlinuz-6.1.0": "a compressed kernel", "lib/modules/6.1.0/kernel/net/veth.ko": "a module"} {
			path := filepath.Join(root, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		return root, nil
	}
}

// A damaged kernel, module or manifest is downloaded again, once, and the run says so. Offline it is named and not used.
func TestADamagedKernelIsDownloadedAgain(t *testing.T) {
	replaced := func(t *testing.T, path string) {
		if err := errors.Join(os.RemoveAll(path), os.WriteFile(path, []byte("no kernel"), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	for file, damages := range map[string]map[string]func(*testing.T, string){
		"boot/vmlinuz-6.1.0": testfiles.Damages(), "lib/modules/6.1.0/kernel/net/veth.ko": testfiles.Damages(),
		"manifest.json": testfiles.Damages(), ".": {"replaced by a file": replaced},
	} {
		for name, damage := range damages {
			t.Run(file+" "+name, func(t *testing.T) {
				dir, calls := t.TempDir(), 0
				var lines []string
				unpack := fakePackage(t, &calls)
				fetch := func() (Kernel, error) {
					return fetchKernel(t.Context(), dir, kernelID, "downloading "+kernelID, func(s string) { lines = append(lines, s) }, unpack)
				}
				good, err := fetch()
				if err != nil || good.Release != "6.1.0" || good.Package != kernelID {
					t.Fatalf("%+v, %v", good, err)
				}
				damage(t, filepath.Join(dir, kernelID, file))
				whole := unpack
				unpack = func(string) (string, error) { return "", errors.New("no network") }
				if k, err := fetch(); err == nil || !strings.Contains(err.Error(), filepath.Join(dir, kernelID)) || !strings.Contains(err.Error(), "no network") {
					t.Errorf("offline: %+v, %v", k, err)
				}
				if k, found := newestKernel(t.Context(), dir, func(string) bool { return true }, func(string) {}); found {
					t.Errorf("without package lists the damaged kernel %+v is used", k)
				}
				unpack, lines = whole, nil
				for range 2 {
					k, err := fetch()
					if err != nil || k.Sha256 != good.Sha256 || calls != 2 {
						t.Errorf("%+v, %v after %d downloads", k, err, calls)
					}
				}
				if len(lines) != 2 || !strings.Contains(lines[0], kernelID) {
					t.Errorf("the reports are %q", lines)
				}
				if left, _ := filepath.Glob(filepath.Join(dir, unpackPrefix+"*")); len(left) != 0 {
					t.Errorf("left are %q", left)
				}
			})
		}
	}
}

// A kernel without a manifest was unpacked by an older program. It is downloaded again, once.
func TestAnUnsealedKernelIsDownloadedAgain(t *testing.T) {
	dir, calls := t.TempDir(), 0
	unpack := fakePackage(t, &calls)
	root, err := unpack(dir)
	if err == nil {
		err = os.Rename(root, filepath.Join(dir, kernelID))
	}
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for range 2 {
		if _, err := fetchKernel(t.Context(), dir, kernelID, "downloading "+kernelID, func(s string) { lines = append(lines, s) }, unpack); err != nil {
			t.Fatal(err)
		}
	}
	if calls != 2 || len(lines) != 2 || !strings.Contains(lines[0], "older program") {
		t.Errorf("%d downloads, and the reports %q", calls, lines)
	}
}

// A kernel's files that its package did not have are not used.
func TestAForeignModuleIsNotUsed(t *testing.T) {
	dir, calls := t.TempDir(), 0
	k, err := fetchKernel(t.Context(), dir, kernelID, "downloading "+kernelID, func(string) {}, fakePackage(t, &calls))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, kernelID, "lib/modules/6.1.0/kernel/foreign.ko"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if files, err := k.ModuleFiles("foreign"); err == nil {
		t.Errorf("the foreign module is %q", files)
	}
}
