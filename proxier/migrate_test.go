package proxier

import (
	"bytes"
	"context"
	"strings"
	"testing"
)

func TestMigrateRefusesBadFlags(t *testing.T) {
	for args, want := range map[string]string{
		"":                                   `--from is ""; it can be bundled, ipvs, iptables, nftables`,
		"--from=userspace":                   `--from is "userspace"`,
		"--from=ipvs --to=cilium":            `--to is "cilium"`,
		"--from=ipvs --to=nftables":          "one of the two has to be bundled",
		"--from=bundled":                     "one of the two has to be bundled",
		"--from=ipvs --config=/no/such/file": "--config",
		"--from=ipvs --log-format=xml":       "text or json",
	} {
		c := Command()
		c.SetArgs(append([]string{"migrate"}, strings.Fields(args)...))
		c.SetOut(&bytes.Buffer{})
		c.SetErr(&bytes.Buffer{})
		if err := c.ExecuteContext(context.Background()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("migrate %s: error %v, want one that says %q", args, err, want)
		}
	}
}
