//go:build !netns

package proxier

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// docs/proxier.md names these flags of kube-proxy, and only flags that exist. The guest that runs netns tests has no
// docs.
func TestPageNamesFlags(t *testing.T) {
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
			t.Errorf("flag %s: exists %v, on the page %v", name, flags.Lookup(name) != nil, bytes.Contains(page, []byte("-"+name)))
		}
	}
	for _, m := range regexp.MustCompile("`--([a-z-]+)[`=]").FindAllSubmatch(page, -1) {
		if name := string(m[1]); flags.Lookup(name) == nil && migrateCommand().Flags().Lookup(name) == nil && name != "help" {
			t.Errorf("the page names --%s, which does not exist", name)
		}
	}
}

// docs/proxier.md names the default values of the drain flags.
func TestPageNamesDrainDefaults(t *testing.T) {
	page, err := os.ReadFile("../docs/proxier.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, d := range map[string]struct{ value, number string }{
		"drain-period":      {"15m0s", "15"},
		"drain-gone-period": {"5m0s", "5"},
		"drain-interval":    {"5s", "5"},
	} {
		near := regexp.MustCompile(`\b` + d.number + `\b[^` + "`" + `|]{0,60}` + "`" + `--` + name + "`")
		if f := Command().Flags().Lookup(name); f == nil || f.DefValue != d.value || !near.Match(page) {
			t.Errorf("--%s is %v by default; the page names %s with it: %v", name, f, d.number, near.Match(page))
		}
	}
}

// The example of a configuration file in docs/proxier.md is valid.
func TestPageExampleIsValid(t *testing.T) {
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
