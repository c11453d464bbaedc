package subject

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestFlagsOfKubeProxy(t *testing.T) {
	for text, want := range map[string]string{ // the canonical name; empty for an error
		"kube-proxy@v1.37.1/ipvs?ipvs-strict-arp=true&ipvs-min-sync-period=0s": "kube-proxy@v1.37.1/ipvs?ipvs-min-sync-period=0s&ipvs-strict-arp=true",
		"kube-proxy@v1.37.1/ipvs?feature-gates=A=true,B=false":                 "kube-proxy@v1.37.1/ipvs?feature-gates=A=true,B=false",
		"kube-proxy@v1.37.1/ipvs":                                              "kube-proxy@v1.37.1/ipvs",
		"kube-proxy@v1.37.1/ipvs?":                                             "",
		"kube-proxy@v1.37.1/ipvs?ipvs-strict-arp":                              "",
		"kube-proxy@v1.37.1/ipvs?ipvs-strict-arp=":                             "",
		"kube-proxy@v1.37.1/ipvs?a=1&a=2":                                      "",
		"kube-proxy@v1.37.1/ipvs?a=1&":                                         "",
		"kube-proxy@v1.37.1/ipvs?--a=1":                                        "",
		"kube-proxy@v1.37.1/ipvs?proxy-mode=iptables":                          "",
		"kube-proxy@v1.37.1/ipvs?config=/etc/x":                                "",
		"kube-proxy@v1.37.1/ipvs?healthz-bind-address=0.0.0.0:1":               "",
		"kube-proxy@v1.37.1/ipvs?metrics-bind-address=0.0.0.0:1":               "",
		"kube-proxy@v1.37.1/ipvs?conntrack-max-per-core=1":                     "",
		"kube-proxy@v1.37.1/ipvs?init-only=true":                               "",
		"kube-proxy@v1.25.3/ipvs?feature-gates=ProxyTerminatingEndpoints=true": "",
		"bundled?ipvs-strict-arp=true":                                         "",
	} {
		s, err := Parse(text)
		if err == nil && s.String() != want || (err == nil) != (want != "") {
			t.Errorf("%s: %s, %v; want %q", text, s, err, want)
		}
		if again, err := Parse(s.String()); want != "" && (err != nil || again != s) {
			t.Errorf("%s is not read as it is written: %v", s, err)
		}
	}
}

// A flag of the name replaces the lab's own; feature gates are joined.
func TestFlagsAreArguments(t *testing.T) {
	s, err := Parse("kube-proxy@v1.30.1/nftables?conntrack-min=7&feature-gates=A=true&v=4")
	if err != nil {
		t.Fatal(err)
	}
	args := s.Args("node-1", "/kubeconfig", "")
	for _, want := range []string{"--conntrack-min=7", "--v=4", "--proxy-mode=nftables", "--feature-gates=A=true,NFTablesProxyMode=true"} {
		if !slices.Contains(args, want) {
			t.Errorf("%q lack %s", args, want)
		}
	}
	for _, name := range []string{"--conntrack-min=", "--feature-gates="} {
		if n := strings.Count(strings.Join(args, " "), name); n != 1 {
			t.Errorf("%q have %s %d times", args, name, n)
		}
	}
}

func TestFlagsAreCheckedByTheProgram(t *testing.T) {
	program := filepath.Join(t.TempDir(), "kube-proxy")
	help := "#!/bin/sh\necho '      --ipvs-strict-arp     Enable strict ARP, as --w does'\necho '  -v, --v Level    verbosity'\n[ $1 = --help ]\n"
	if err := os.WriteFile(program, []byte(help), 0o755); err != nil {
		t.Fatal(err)
	}
	for flags, known := range map[string]bool{"ipvs-strict-arp=true": true, "v=4": true, "ipvs-strict=true": false, "strict-arp=true": false, "v=4&w=1": false} {
		s, err := Parse("kube-proxy@v1.37.1/ipvs?" + flags)
		if err != nil {
			t.Fatal(err)
		}
		err = s.CheckFlags(t.Context(), program)
		if (err == nil) != known {
			t.Errorf("%s: %v", flags, err)
		}
		if proposed := err != nil && strings.HasSuffix(err.Error(), "it has ipvs-strict-arp"); proposed != (flags == "strict-arp=true") {
			t.Errorf("%s: %v proposes another flag: %t", flags, err, proposed)
		}
	}
}
