package build

import (
	"errors"
	"net/url"
	"regexp"
	"strings"
)

// Reasons of failed builds. Errors of Build wrap one of them where it applies.
var (
	// ErrNotServed: the configured module proxy does not have the version.
	ErrNotServed = errors.New("not served by the module proxy in use")
	// ErrNotReleased: upstream or the mirror has no such file.
	ErrNotReleased = errors.New("there is no such release")
	// ErrChecksum: a download does not match the checksum database or the published checksum.
	ErrChecksum = errors.New("checksum mismatch")
	// ErrUnverified: an artifact is published without a checksum that protects.
	ErrUnverified = errors.New("it cannot be verified")
	// ErrOffline: a module or an artifact is not in the cache and the network is unreachable.
	ErrOffline = errors.New("no network and not in the cache")
	// ErrCompile: the compilation failed.
	ErrCompile = errors.New("compile error")
	// errDownload: a download failed for the reason in the rest of the message.
	errDownload = errors.New("download failed")
	// errOldGo: a module needs a newer Go.
	errOldGo = errors.New("it needs a newer Go than this machine's")
	// errUnlisted: the checksum database has no entry.
	errUnlisted = errors.New("the checksum database has no entry for it")
)

// tailLines is the number of lines of compiler output in an error.
const tailLines = 20

// networkSigns are parts of the go command's messages when the network or the proxy is unreachable.
var networkSigns = []string{
	"dial tcp", "dial udp", "no such host", "connection refused", "connection reset", "network is unreachable",
	"no route to host", "i/o timeout", "tls handshake timeout", "context deadline exceeded", "goproxy=off",
	"could not resolve host",
}

// absentSigns are parts of its messages when the proxy does not have the version. They must not match other errors: an overloaded
// proxy must not lead to an older version.
var absentSigns = []string{
	"403 forbidden", "404 not found", "410 gone", "not found:", "unknown revision", "invalid version", "no matching versions",
	"unrecognized import path",
}

// reason classifies the message of a failed download.
func reason(message string) error {
	lower := strings.ToLower(message)
	switch {
	case strings.Contains(lower, "checksum mismatch"), strings.Contains(lower, "security error"):
		return ErrChecksum
	case containsAny(lower, networkSigns):
		return ErrOffline
	case strings.Contains(lower, "verifying") && strings.Contains(lower, "/lookup/") &&
		containsAny(lower, []string{"404 not found", "410 gone"}):
		return errUnlisted
	case strings.Contains(lower, "requires go >="):
		return errOldGo
	case containsAny(lower, absentSigns):
		return ErrNotServed
	default:
		return errDownload
	}
}

func containsAny(s string, parts []string) bool {
	for _, p := range parts {
		if strings.Contains(s, p) {
			return true
		}
	}
	return false
}

var (
	urlInText    = regexp.MustCompile(`[a-z][a-z0-9+]*://[^\s"']*[^\s"':,.;)]`)
	lookupInText = regexp.MustCompile(`lookup \S+( on \S+)?:`)
	addrInText   = regexp.MustCompile(`(\d{1,3}\.){3}\d{1,3}(:\d+)?|\[[0-9a-fA-F:]+\](:\d+)?`)
)

// plain removes URLs, addresses and the hosts of the proxy and the checksum database from a message: a configured mirror may be
// confidential.
func (g goInfo) plain(message string) string {
	s := urlInText.ReplaceAllString(message, "(address)")
	s = lookupInText.ReplaceAllString(s, "lookup:")
	s = addrInText.ReplaceAllString(s, "(address)")
	for _, host := range g.hosts() {
		s = strings.ReplaceAll(s, host, "(address)")
	}
	return strings.TrimSpace(s)
}

// hosts are the configured names of module proxies and of the checksum database.
func (g goInfo) hosts() []string {
	var hosts []string
	words := strings.FieldsFunc(g.Proxies+","+g.SumDB, func(r rune) bool { return r == ',' || r == '|' || r == ' ' || r == '+' })
	for _, w := range words {
		if u, err := url.Parse(w); err == nil && u.Host != "" {
			hosts = append(hosts, u.Host)
		} else if strings.Contains(w, ".") && !strings.Contains(w, "/") {
			hosts = append(hosts, w)
		}
	}
	return hosts
}

// firstLines joins the first three lines of a message.
func firstLines(message string) string {
	lines := strings.Split(strings.TrimSpace(message), "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return strings.Join(lines[:min(3, len(lines))], " / ")
}

// lastLines returns the last tailLines lines.
func lastLines(output string) string {
	lines := strings.Split(strings.TrimSpace(output), "\n")
	return strings.Join(lines[max(0, len(lines)-tailLines):], "\n")
}
