package linux

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// sysctl is a required setting and its reason.
type sysctl struct{ path, value, why string }

// requiredSysctls returns the settings that the proxier relies on (Documentation/networking/ipvs-sysctl.rst).
func requiredSysctls(release string, strictARP bool) []sysctl {
	list := []sysctl{
		{"net/ipv4/vs/conntrack", "1", "masquerading connections through IPVS needs conntrack"},
		{"net/ipv4/vs/expire_nodest_conn", "1", "connections of a deleted real server must end at once instead of hanging"},
		{"net/ipv4/vs/expire_quiescent_template", "1", "affinity must not select a real server of weight 0 (kubernetes#71834)"},
		{"net/ipv4/ip_forward", "1", "the node forwards to pods"},
	}
	if olderThan(release, 5, 9) {
		list = append(list, sysctl{"net/ipv4/vs/conn_reuse_mode", "0",
			"before Linux 5.9 a reused client port is delayed by a second (kubernetes#70747)"})
	}
	if strictARP {
		list = append(list,
			sysctl{"net/ipv4/conf/all/arp_ignore", "1", "strict ARP"},
			sysctl{"net/ipv4/conf/all/arp_announce", "2", "strict ARP"})
	}
	return list
}

// setSysctls writes the settings that differ.
func setSysctls(proc string, strictARP bool) error {
	if proc == "" {
		proc = "/proc"
	}
	release, err := kernelRelease()
	if err != nil {
		return err
	}
	for _, s := range requiredSysctls(release, strictARP) {
		if err := s.set(filepath.Join(proc, "sys")); err != nil {
			return err
		}
	}
	return nil
}

// enableIPv6 permits IPv6 addresses on the device, which a node can disable for new devices. It returns an error if they
// stay disabled: without full root privileges sysctls are read-only.
func enableIPv6(proc string) error {
	s := sysctl{"net/ipv6/conf/" + Device + "/disable_ipv6", "0", "virtual addresses need IPv6 on the device"}
	root := filepath.Join(proc, "sys")
	if _, err := os.Stat(filepath.Join(root, s.path)); errors.Is(err, os.ErrNotExist) {
		return nil // nothing disables it
	}
	if err := s.set(root); err != nil {
		return fmt.Errorf("IPv6 is disabled for the device %s: %w; run --init-only with full root privileges", Device, err)
	}
	return nil
}

func (s sysctl) set(root string) error {
	path := filepath.Join(root, s.path)
	now, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("setting %s=%s: the sysctl does not exist (%s); the kernel lacks it, or hides it outside the initial user namespace", s.path, s.value, s.why)
	}
	if err != nil {
		return fmt.Errorf("reading sysctl %s: %w", s.path, err)
	}
	if string(bytes.TrimSpace(now)) == s.value {
		return nil
	}
	if err := os.WriteFile(path, []byte(s.value), 0o644); err != nil {
		return fmt.Errorf("setting %s=%s, now %s: %w (%s)", s.path, s.value, bytes.TrimSpace(now), err, s.why)
	}
	return nil
}

func kernelRelease() (string, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "", fmt.Errorf("reading the kernel release: %w", err)
	}
	return unix.ByteSliceToString(u.Release[:]), nil
}

// olderThan reports whether a release such as 6.1.0-56-cloud-amd64 is older than major.minor; false if it cannot be
// parsed.
func olderThan(release string, major, minor int) bool {
	parts := strings.SplitN(release, ".", 3)
	if len(parts) < 2 {
		return false
	}
	digits := func(s string) string {
		return s[:len(s)-len(strings.TrimLeft(s, "0123456789"))]
	}
	a, errA := strconv.Atoi(digits(parts[0]))
	b, errB := strconv.Atoi(digits(parts[1]))
	if errA != nil || errB != nil {
		return false
	}
	return a < major || a == major && b < minor
}
