//go:build linux

package subject

import (
	"slices"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for _, text := range []string{"bundled", "kube-proxy@v1.11.5/ipvs", "kube-proxy@v1.26.0/iptables", "kube-proxy@v1.37.1/nftables"} {
		if s, err := Parse(text); err != nil || s.String() != text {
			t.Errorf("%s gave %v, %v", text, s, err)
		}
	}
	for text, want := range map[string]string{
		"kube-proxy":                  "kube-proxy@VERSION/MODE",
		"kube-proxy/ipvs":             "no version",
		"kube-proxy@v1.26.0":          "no mode",
		"kube-proxy@v1.26.0/":         `no mode ""`,
		"kube-proxy@v1.26.0/ipvsadm":  `no mode "ipvsadm"; its modes are userspace, iptables`,
		"kube-proxy@1.26.0/iptables":  "such as",
		"kube-proxy@v1.26/iptables":   "v1.MINOR.PATCH",
		"kube-proxy@v1.10.0/ipvs":     "v1.11",
		"kube-proxy@v1.28.0/nftables": "v1.29",
		"cilium":                      "bundled",
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s gave %v, want a word of %q", text, err, want)
		}
	}
}

// The gate ProxyTerminatingEndpoints: absent before 1.22, off until 1.25, on from 1.26, locked from 1.28.
func TestTerminatingFallback(t *testing.T) {
	for _, c := range []struct{ subject, def, asked, gate string }{
		{"kube-proxy@v1.25.3/iptables", "off", "off", ""},
		{"kube-proxy@v1.25.3/iptables", "off", "on", "ProxyTerminatingEndpoints=true"},
		{"kube-proxy@v1.26.0/iptables", "on", "off", "ProxyTerminatingEndpoints=false"},
		{"kube-proxy@v1.26.0/iptables", "on", "on", ""},
		{"kube-proxy@v1.37.1/nftables", "on", "on", ""},
		{"kube-proxy@v1.12.2/ipvs", "off", "off", ""},
	} {
		s, err := Parse(c.subject)
		if err != nil {
			t.Fatal(err)
		}
		args := s.Args("node-1", "file", c.asked)
		gate := slices.IndexFunc(args, func(a string) bool { return strings.HasPrefix(a, "--feature-gates=") })
		if s.DefaultFallback() != c.def || s.CheckFallback(c.asked) != nil || (gate < 0) != (c.gate == "") ||
			(gate >= 0 && args[gate] != "--feature-gates="+c.gate) {
			t.Errorf("%s asked for %s: default %s, args %v", c.subject, c.asked, s.DefaultFallback(), args)
		}
	}
	for subject, value := range map[string]string{"kube-proxy@v1.12.2/ipvs": "on", "kube-proxy@v1.37.1/ipvs": "off"} {
		s, err := Parse(subject)
		if err != nil {
			t.Fatal(err)
		}
		if s.CheckFallback(value) == nil {
			t.Errorf("%s claims that it can honour terminatingFallback=%s", subject, value)
		}
	}
}

// The gate NFTablesProxyMode: alpha and off in 1.29 and 1.30, on from 1.31.
func TestNFTablesFeatureGate(t *testing.T) {
	for subject, want := range map[string]bool{
		"kube-proxy@v1.29.15/nftables": true, "kube-proxy@v1.30.14/nftables": true, "kube-proxy@v1.31.0/nftables": false, "kube-proxy@v1.30.14/ipvs": false,
	} {
		s, err := Parse(subject)
		if err != nil {
			t.Fatal(err)
		}
		if got := slices.Contains(s.Args("node-1", "file", ""), "--feature-gates=NFTablesProxyMode=true"); got != want {
			t.Errorf("%s is given the gate: %v, want %v", subject, got, want)
		}
	}
}

// Sync errors are told from other errors in the logs.
func TestSyncErrors(t *testing.T) {
	for line, want := range map[string]bool{
		`E0101 00:00:04.937972 114 ipset.go:152] Failed to add entry: 10.96.0.11,tcp:80 to ip set: KUBE-CLUSTER-IP, error: exit status 1`:         true,
		`E0101 00:00:03.073829 114 server_others.go:305] can't determine whether to use ipvs proxy, error: error getting installed ipvs required`: true,
		`E0101 00:00:03.1 114 proxier.go:1430] Failed to execute iptables-restore: exit status 1 (iptables-restore: line 7 failed)`:               true,
		`W0101 00:00:03.1 114 server_others.go:265] can't use ipvs proxier, error: IPVS proxier will not be used because`:                         true,
		`E0101 00:00:03.182110 114 proxier.go:232] Error removing userspace rule: error checking rule: Chain 'KUBE-PORTALS-HOST' does not exist`:  false,
		`E0101 00:00:32.740605    1287 cleanup.go:89] "Failed to execute iptables-restore" err=<`:                                                 false,
		`I0101 00:00:03.110805 114 server_others.go:189] Using ipvs Proxier.`:                                                                     false,
		`I0101 00:01:03.1 114 graceful_termination.go:160] Trying to delete rs: 10.96.0.11:80/TCP/10.244.1.2:8080`:                                false,
		`E0101 00:01:03.1 114 graceful_termination.go:89] Try delete rs "x" err: Failed to delete rs "x", can't find the real server`:             false,
		// A restart: rules that still stand refer to chains of the other mode, in 1.12 and in 1.37.
		`E0101 00:10:06.5 1354 proxier.go:430] Failed to execute iptables-restore for nat: exit status 4 (iptables-restore v1.8.9 (nf_tables): `: false,
		`E0101 00:10:06.5 1354 cleanup.go:116] "Failed to execute iptables-restore" err="exit status 4" table="filter"`:                          false,
		`E0101 00:10:06.5 1354 proxier.go:1194] "Failed to execute iptables-restore" err="exit status 4" rules="*nat"`:                           true,
	} {
		if isSyncError(line) != want {
			t.Errorf("failed=%t for %s", !want, line)
		}
	}
}

// kube-proxy had the userspace mode up to v1.25.
func TestUserspaceEndsWithItsLastVersion(t *testing.T) {
	for version, has := range map[string]bool{"v1.11.10": true, "v1.25.3": true, "v1.26.0": false, "v1.37.1": false} {
		if _, err := Parse("kube-proxy@" + version + "/userspace"); (err == nil) != has {
			t.Errorf("%s: %v", version, err)
		}
		if listed := slices.ContainsFunc(KubeProxies(version), func(s Spec) bool { return s.Mode == "userspace" }); listed != has {
			t.Errorf("%s: listed with the mode %t", version, listed)
		}
	}
}
