package failing

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A call that would have changed rules is a failed sync. A question is none: a proxy without work asks too.
func TestOnlyWritingCallsAreNoted(t *testing.T) {
	for call, want := range map[string]bool{
		"iptables-restore -w 5 -W 100000 --noflush --counters":                true,
		"ip6tables-restore --version":                                         false,
		"iptables -w 5 -W 100000 -N KUBE-SERVICES -t nat":                     true,
		"iptables -w 5 -I PREROUTING -t nat -m comment --comment x -j KUBE-X": true,
		"iptables -w 5 -S KUBE-PROXY-CANARY -t mangle":                        false,
		"iptables -w 5 -C POSTROUTING -t nat -j KUBE-POSTROUTING":             false,
		"ip6tables --version":                                                 false,
		"iptables -t nat -F KUBE-SEP-X":                                       true,
		"nft -f -":                                                            true,
		"nft --check -f -":                                                    false,
		"nft --json list chains ip":                                           false,
		"nft add table ip kube-proxy":                                         true,
		"nft delete table ip6 kube-proxy":                                     true,
		"nft --version":                                                       false,
		"ipset create KUBE-CLUSTER-IP hash:ip,port family inet -exist":        true,
		"ipset add KUBE-CLUSTER-IP 10.96.0.1,tcp:443 -exist":                  true,
		"ipset list KUBE-CLUSTER-IP":                                          false,
		"ipset test KUBE-CLUSTER-IP 10.96.0.1,tcp:443":                        false,
		"ipset --version":                                                     false,
	} {
		dir := t.TempDir()
		words := strings.Fields(call)
		if err := os.Mkdir(filepath.Join(dir, "current"), 0o755); err != nil {
			t.Fatal(err)
		}
		var said bytes.Buffer
		if got := fail(filepath.Join(dir, "current", words[0]), words[1:], &said); got != Status || !strings.HasPrefix(said.String(), words[0]+": hitless makes this program fail") {
			t.Errorf("%s: exit code %d, %q", call, got, said.String())
		}
		calls, err := Calls(dir)
		if err != nil || want && !slices.Equal(calls, []string{call + "\n"}) || !want && len(calls) > 0 {
			t.Errorf("%s: noted %q, %v; want it noted: %t", call, calls, err, want)
		}
	}
}
