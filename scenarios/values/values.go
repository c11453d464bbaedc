// Package values parses the values of `--set` parameters and of a timeline's arguments. Each error has the value and the valid ones.
package values

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Type parses a value, or returns an error with the valid values.
type Type[T any] func(text string) (T, error)

// Check reports whether the text is valid.
func (t Type[T]) Check(text string) error {
	_, err := t(text)
	return err
}

// Duration is a duration from low to high.
func Duration(low, high time.Duration) Type[time.Duration] {
	return func(text string) (time.Duration, error) {
		d, err := time.ParseDuration(text)
		if err != nil || d < low || d > high {
			return 0, fmt.Errorf("%q is not a duration from %s to %s, such as %s", text, low, high, max(low, min(5*time.Second, high)))
		}
		return d, nil
	}
}

// Number is a whole number from low to high.
func Number(low, high int) Type[int] {
	return func(text string) (int, error) {
		n, err := strconv.Atoi(text)
		if err != nil || n < low || n > high {
			return 0, fmt.Errorf("%q is not a whole number from %d to %d", text, low, high)
		}
		return n, nil
	}
}

// Word is one of the given words.
func Word(words ...string) Type[string] {
	return func(text string) (string, error) {
		if !slices.Contains(words, text) {
			return "", fmt.Errorf("%q is not one of %s", text, strings.Join(words, ", "))
		}
		return text, nil
	}
}

// List is a list of the given words with commas between them, each at most once.
func List(words ...string) Type[[]string] {
	return func(text string) ([]string, error) {
		list := strings.Split(text, ",")
		for i, word := range list {
			if !slices.Contains(words, word) || slices.Contains(list[:i], word) {
				return nil, fmt.Errorf("%q is not a list of some of %s, each once, separated by commas", text, strings.Join(words, ","))
			}
		}
		return list, nil
	}
}

// Switch is on or off.
func Switch(text string) (bool, error) {
	_, err := Word("on", "off")(text)
	return text == "on", err
}

// Text is any text but the empty one.
func Text(text string) (string, error) {
	if text == "" {
		return "", fmt.Errorf("%q is empty: give a name or a word", text)
	}
	return text, nil
}

// Rate is a number of attempts a second, from 0.000001 to 5000.
func Rate(text string) (float64, error) {
	r, err := strconv.ParseFloat(text, 64)
	if err != nil || !(r >= 1e-6 && r <= 5000) {
		return 0, fmt.Errorf("%q is not a number of attempts a second from 0.000001 to 5000", text)
	}
	return r, nil
}

var name = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$`)

// Name is the name of a Kubernetes object.
func Name(text string) (string, error) {
	if !name.MatchString(text) {
		return "", fmt.Errorf("%q is not a name: small letters, digits, - and . only", text)
	}
	return text, nil
}

// Addresses are IP addresses with commas between them, each once; a single - is the empty list.
func Addresses(text string) (list []string, err error) {
	if text == "-" {
		return nil, nil
	}
	for address := range strings.SplitSeq(text, ",") {
		if a, err := netip.ParseAddr(address); err != nil || a.Zone() != "" || a.Is4In6() {
			return nil, fmt.Errorf("%q is not an IP address; give addresses separated by commas, or - for none", address)
		}
		if slices.Contains(list, address) {
			return nil, fmt.Errorf("%s is there twice", address)
		}
		list = append(list, address)
	}
	return list, nil
}

// Prefix is an IP address with the length of its prefix, such as 192.0.2.1/32.
func Prefix(text string) (string, error) {
	if p, err := netip.ParsePrefix(text); err != nil || p.Addr().Zone() != "" || p.Addr().Is4In6() {
		return "", fmt.Errorf("%q is not an address with a length of its prefix, such as 192.0.2.1/32", text)
	}
	return text, nil
}

// AddressV4 is an IPv4 address.
func AddressV4(text string) (string, error) {
	if a, err := netip.ParseAddr(text); err != nil || !a.Is4() {
		return "", fmt.Errorf("%q is not an IPv4 address, such as 203.0.113.10", text)
	}
	return text, nil
}

var sysctl = regexp.MustCompile(`^net(\.[A-Za-z0-9_-]+)+$`)

// Sysctl is the name of a setting of the network of a kernel, which each node has for itself.
func Sysctl(text string) (string, error) {
	if !sysctl.MatchString(text) {
		return "", fmt.Errorf("%q is not a setting of the network, such as net.ipv4.ip_forward", text)
	}
	return text, nil
}
