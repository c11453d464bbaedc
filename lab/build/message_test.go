package build

import (
	"errors"
	"strings"
	"testing"
)

// The messages are the go command's, with other host names.
func TestReason(t *testing.T) {
	for message, want := range map[string]error{
		"k8s.io/x@v1.0.0: reading https://proxy.example.com/k8s.io/x/@v/v1.0.0.info: 403 Forbidden\n\tserver response: This module version is not available.":       ErrNotServed,
		"k8s.io/x@v1.0.0: reading https://proxy.example.com/k8s.io/x/@v/v1.0.0.zip: 404 Not Found":                                                                  ErrNotServed,
		"k8s.io/x@v1.0.0: invalid version: unknown revision v1.0.0":                                                                                                 ErrNotServed,
		"k8s.io/x@v1.0.0: verifying go.mod: k8s.io/x@v1.0.0/go.mod: reading https://proxy.example.com/sumdb/sums.example.com/lookup/k8s.io/x@v1.0.0: 404 Not Found": errUnlisted,
		"k8s.io/x@v1.0.0: verifying module: Get \"https://sums.example.com/lookup/k8s.io/x@v1.0.0\": dial tcp: lookup sums.example.com: no such host":               ErrOffline,
		"k8s.io/x@v1.0.0: Get \"https://proxy.example.com/k8s.io/x\": dial tcp 192.0.2.7:443: connect: connection refused":                                          ErrOffline,
		"k8s.io/x@v1.0.0: module lookup disabled by GOPROXY=off":                                                                                                    ErrOffline,
		"k8s.io/x@v1.0.0: verifying module: checksum mismatch\n\tdownloaded: h1:a\n\tgo.sum: h1:b\n\nSECURITY ERROR":                                                ErrChecksum,
		"k8s.io/x@v1.0.0 requires go >= 1.99.0 (running go 1.26.8; GOTOOLCHAIN=local)":                                                                              errOldGo,
		"k8s.io/x@v1.0.0: reading https://proxy.example.com/k8s.io/x/@v/v1.0.0.zip: 503 Service Unavailable":                                                        errDownload,
		"write /cache/x.zip: no space left on device":                                                                                                               errDownload,
	} {
		if got := reason(message); !errors.Is(got, want) {
			t.Errorf("reason of %q is %v, want %v", message, got, want)
		}
	}
}

func TestPlainNamesNoHost(t *testing.T) {
	info := goInfo{Proxies: "https://proxy.example.com,https://user:secret@mirror.example.org/go|direct", SumDB: "sums.example.com+033de0ae+Ac4zctda0e5eza+HJyk9SxEdh+s3Ux18htTTAD8OuAn8 https://sumproxy.example.net"}
	for message, want := range map[string]string{
		"k8s.io/x@v1: reading https://proxy.example.com/k8s.io/x/@v/v1.info: 404 Not Found":                                  "k8s.io/x@v1: reading (address): 404 Not Found",
		`golang.org/x/net@v1: Get "https://user:secret@mirror.example.org/go/x": dial tcp 192.0.2.7:443: connection refused`: `golang.org/x/net@v1: Get "(address)": dial tcp (address): connection refused`,
		"dial tcp: lookup proxy.example.com on [2001:db8::1]:53: no such host":                                               "dial tcp: lookup: no such host",
		"verifying with sums.example.com and sumproxy.example.net failed":                                                    "verifying with (address) and (address) failed",
		"fatal: unable to access 'https://git.example.com/net/': ssh://git@example.com/x.":                                   "fatal: unable to access '(address)': (address).",
		"/src/a.go:12:3: undefined: x": "/src/a.go:12:3: undefined: x",
	} {
		if got := info.plain(message); got != want {
			t.Errorf("plain(%q)\n got %q\nwant %q", message, got, want)
		}
	}
}

func TestShortening(t *testing.T) {
	if got := firstLines(" a\n\tb\nc\nd\n"); got != "a / b / c" {
		t.Errorf("first lines are %q", got)
	}
	long := strings.Repeat("early\n", 30) + strings.Repeat("late\n", tailLines)
	if got := lastLines(long); strings.Contains(got, "early") || strings.Count(got, "late") != tailLines {
		t.Errorf("last lines are %q", got)
	}
}
