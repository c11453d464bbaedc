//go:build !netns

package proxier

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// This test reads the repository, which the guest that runs the tests of namespaces does not have.

// The page of the proxier promises these names of kube-proxy, and names none that there is not.
func TestFlagsOfThePage(t *testing.T) {
	page, err := os.ReadFile("../docs/proxier.md")
	if err != nil {
		t.Fatal(err)
	}
	flags := Command().Flags()
	for _, name := range []string{"kubeconfig", "master", "hostname-override", "healthz-bind-address", "metrics-bind-address", "cluster-cidr",
		"masquerade-all", "nodeport-addresses", "proxy-mode", "ipvs-scheduler", "ipvs-strict-arp", "ipvs-sync-period", "ipvs-min-sync-period",
		"ipvs-tcp-timeout", "ipvs-tcpfin-timeout", "ipvs-udp-timeout", "init-only", "cleanup", "profiling", "v", "config",
		"detect-local-mode", "pod-bridge-interface", "pod-interface-name-prefix"} {
		if flags.Lookup(name) == nil || !bytes.Contains(page, []byte("-"+name)) {
			t.Errorf("flag %s: there %v, on the page %v", name, flags.Lookup(name) != nil, bytes.Contains(page, []byte("-"+name)))
		}
	}
	for _, m := range regexp.MustCompile("`--([a-z-]+)[`=]").FindAllSubmatch(page, -1) {
		if name := string(m[1]); flags.Lookup(name) == nil && migrateCommand().Flags().Lookup(name) == nil && name != "help" {
			t.Errorf("the page names --%s, which there is not", name)
		}
	}
}

// The page says how long what leaves is given.
func TestDrainingOfThePage(t *testing.T) {
	page, err := os.ReadFile("../docs/proxier.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, d := range map[string]struct{ value, said string }{
		"drain-period":      {"15m0s", "has 15 minutes (`--drain-period`)"},
		"drain-gone-period": {"5m0s", "has 5 (`--drain-gone-period`)"},
		"drain-interval":    {"5s", "after 5 s (`--drain-interval`)"},
	} {
		if f := Command().Flags().Lookup(name); f == nil || f.DefValue != d.value || !bytes.Contains(page, []byte(d.said)) {
			t.Errorf("--%s is %v by default, and the page says %q: %v", name, f, d.said, bytes.Contains(page, []byte(d.said)))
		}
	}
}

// The page's example of a file is one that the program takes.
func TestConfigOfThePage(t *testing.T) {
	page, err := os.ReadFile("../docs/proxier.md")
	if err != nil {
		t.Fatal(err)
	}
	example := regexp.MustCompile("(?s)```yaml\n(cluster-cidr.*?)```").FindSubmatch(page)
	if example == nil {
		t.Fatal("the page has no example")
	}
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, example[1], 0o600); err != nil {
		t.Fatal(err)
	}
	if err := readConfig(file, Command().Flags().Lookup); err != nil {
		t.Error(err)
	}
}
