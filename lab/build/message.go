package build

import (
	"errors"
	"net/url"
	"regexp"
	"strings"
)

// The reasons for which a target cannot be built. Errors of Build wrap one of them where it applies.
var (
	// ErrNotServed means that the module proxy in use does not have the version.
	ErrNotServed = errors.New("not served by the module proxy in use")
	// ErrChecksum means that what was downloaded is not what the checksum database knows.
	ErrChecksum = errors.New("checksum mismatch")
	// ErrOffline means that it is not in the cache and there is no network to fetch it.
	ErrOffline = errors.New("no network and not in the cache")
	// ErrCompile means that the compiler refused.
	ErrCompile = errors.New("compile error")
	// errDownload means that a download failed for another reason, which the message after it tells.
	errDownload = errors.New("download failed")
	// errOldGo means that a module asks for a newer Go.
	errOldGo = errors.New("it needs a newer Go than this machine's")
	// errUnlisted means that the checksum database answered that it has no entry.
	errUnlisted = errors.New("the checksum database has no entry for it")
)

// tailLines is how much of a compiler's output an error quotes.
const tailLines = 20

// networkSigns are what the go command's messages say when the network or the proxy cannot be reached.
var networkSigns = []string{
	"dial tcp", "dial udp", "no such host", "connection refused", "connection reset", "network is unreachable",
	"no route to host", "i/o timeout", "tls handshake timeout", "context deadline exceeded", "goproxy=off",
	"could not resolve host",
}

// absentSigns are what they say when the proxy answered that it does not have the version. Nothing else may count as
// that: an overloaded proxy must not make an older version be taken.
var absentSigns = []string{
	"403 forbidden", "404 not found", "410 gone", "not found:", "unknown revision", "invalid version", "no matching versions",
	"unrecognized import path",
}

// reason tells what a failed download's message means.
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

// plain takes URLs, addresses and the names of the proxy and the checksum database out of a message: whose mirror a
// user has configured is nobody's business, and says nothing about what went wrong.
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

// firstLines keeps a message short: its first lines on one line.
func firstLines(message string) string {
	lines := strings.Split(strings.TrimSpace(message), "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return strings.Join(lines[:min(3, len(lines))], " / ")
}

// lastLines is the end of a compiler's output.
func lastLines(output string) string {
	lines := strings.Split(strings.TrimSpace(output), "\n")
	return strings.Join(lines[max(0, len(lines)-tailLines):], "\n")
}
