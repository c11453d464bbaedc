package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The errors distinguish a kubeconfig of another cluster from that of an ended lab.
func TestLabShellNeedsALabThatRuns(t *testing.T) {
	dir := t.TempDir()
	stranger, gone := filepath.Join(dir, "stranger"), filepath.Join(dir, "gone")
	const head = "apiVersion: v1\nkind: Config\n"
	for file, text := range map[string]string{stranger: head,
		gone: head + "extensions:\n- name: hitless-lab\n  extension: {pid: 1, net: 999999, user: -1}\n"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for file, want := range map[string]string{filepath.Join(dir, "none"): "hitless lab up", stranger: "is not the kubeconfig of a lab", gone: "is gone"} {
		var out bytes.Buffer
		if code := execute([]string{"lab", "shell", "--kubeconfig", file, "--", "true"}, &out, &out); code != 2 || !strings.Contains(out.String(), want) {
			t.Errorf("%s: exit %d, want 2 and %q:\n%s", filepath.Base(file), code, want, out.String())
		}
	}
}

// A DaemonSet of proxies needs a kube-proxy, a control plane with its controller, and images of kube-proxies that have the mode. Only a VM has
// another kernel, and its link has IPv4 only.
func TestLabRefusesWhatItCannotRun(t *testing.T) {
	for args, want := range map[string]string{
		"--kernel auto":                                                        "one of host, vm",
		"--kernel host --guest-kernel debian-13":                               "leave one of them out",
		"--kernel vm --controlplane replay --set family=ipv6":                  "give --kernel host",
		"--kernel vm --subject kube-proxy@v1.12.10/iptables --set family=ipv6": "kube-proxy@v1.12.10/iptables",
		"--kernel vm --guest-kernel nowhere":                                   "--guest-kernel",
		"--proxy-image kube-proxy@v1.36.1":                                     "give --proxy-daemonset too",
		"--proxy-daemonset --subject bundled":                                  "bundled has no image",
		"--proxy-daemonset --controlplane replay":                              "give --controlplane kube",
		"--proxy-daemonset --proxy-image=":                                     "--proxy-image",
		"--proxy-daemonset --proxy-image etcd@v3.7.0":                          "etcd is no proxy",
		"--proxy-daemonset --proxy-image kube-proxy@v1.28.0":                   "since v1.29",
		"--proxy-daemonset --proxy-image kube-proxy@v1.99.0":                   "outside the supported range",
		"--proxy-daemonset --proxy-image kube-proxy@v1.37.1":                   "has this version already",
		"--proxy-daemonset --proxy-image kube-proxy@v1.36.1/iptables":          "v1.36.1/iptables",
	} {
		t.Chdir(t.TempDir())
		var out bytes.Buffer
		code := execute(append([]string{"lab", "up"}, strings.Fields(args)...), &out, &out)
		if code != exitUsage || !strings.Contains(out.String(), want) || strings.Count(out.String(), "\n") != 1 {
			t.Errorf("hitless lab up %s: exit %d, want 2 and one line with %q:\n%s", args, code, want, out.String())
		}
		if left, err := os.ReadDir("."); err != nil || len(left) > 0 {
			t.Errorf("hitless lab up %s left %v (%v)", args, left, err)
		}
	}
}
