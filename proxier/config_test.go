package proxier

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func configFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestConfigFile(t *testing.T) {
	c := Command()
	if err := c.ParseFlags([]string{"--ipvs-scheduler=lc", "--nodeport-addresses=10.0.0.0/8"}); err != nil {
		t.Fatal(err)
	}
	path := configFile(t, "# a node\nipvs-scheduler: mh\nmasquerade-all: true\nv: 4\nreconcile-period: 10m\nhostname-override: node-7\nnodeport-addresses: [192.168.0.0/16]\n")
	if err := readConfig(path, c.Flags().Lookup); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"masquerade-all": "true", "v": "4", "hostname-override": "node-7", "reconcile-period": (10 * time.Minute).String(),
		"ipvs-scheduler":       "lc",           // the command line takes precedence
		"nodeport-addresses":   "[10.0.0.0/8]", // also for lists
		"ipvs-sync-period":     "30s",          // set in neither
		"terminating-fallback": "true",
	} {
		if got := c.Flags().Lookup(name).Value.String(); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	lists := Command()
	path = configFile(t, "nodeport-addresses:\n- 192.168.0.0/16\n- fd00::/8\n")
	if err := readConfig(path, lists.Flags().Lookup); err != nil {
		t.Fatal(err)
	}
	got, err := lists.Flags().GetStringSlice("nodeport-addresses")
	if diff := cmp.Diff([]string{"192.168.0.0/16", "fd00::/8"}, got); diff != "" || err != nil {
		t.Errorf("a list (-want +got, error %v):\n%s", err, diff)
	}
	for _, empty := range []string{"", "# nothing\n"} {
		if err := readConfig(configFile(t, empty), Command().Flags().Lookup); err != nil {
			t.Errorf("a file without keys: %v", err)
		}
	}
}

// An invalid file ends the program before it accesses the kernel, with an error that names file and line.
func TestConfigFileErrors(t *testing.T) {
	for text, want := range map[string]string{
		"ipvs-scheduler: rr\nipvs-shceduler: mh\n": `config.yaml:2: unknown key "ipvs-shceduler"`,
		"v: 1\n\nv: 2\n":                 `config.yaml:3: v is given twice, first in line 1`,
		"masquerade-all: yes please\n":   `config.yaml:1: key "masquerade-all" is "yes please"`,
		"reconcile-period: soon\n":       `config.yaml:1: key "reconcile-period" is "soon"`,
		"reconcile-period:\n":            `config.yaml:1: key "reconcile-period"`,
		"ipvs-scheduler: [rr]\n":         `config.yaml:1: key "ipvs-scheduler"`,
		"nodeport-addresses: [{a: b}]\n": `config.yaml:1: key "nodeport-addresses": line 1`,
		"cleanup: true\n":                `config.yaml:1: key "cleanup"`,
		"- ipvs-scheduler\n":             `config.yaml:1: not a mapping`,
		"v: 1\n---\nv: 2\n":              `config.yaml:2: a second document`,
		"v: 1\n  w: [\n":                 `config.yaml:2: this is not YAML`,
		"ipvs-scheduler: nonsense\n":     `--ipvs-scheduler is "nonsense"`,
	} {
		c := Command()
		c.SetArgs([]string{"--master=http://127.0.0.1:1", "--config=" + configFile(t, text)})
		c.SetOut(&bytes.Buffer{})
		c.SetErr(&bytes.Buffer{})
		if err := c.ExecuteContext(context.Background()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want one that contains %s", text, err, want)
		}
	}
	if err := readConfig("/does/not/exist", Command().Flags().Lookup); err == nil || !strings.Contains(err.Error(), "--config") {
		t.Errorf("a missing file: %v", err)
	}
}
