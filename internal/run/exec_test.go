package run

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hitless/hitless/internal/site"
	"github.com/hitless/hitless/scenarios"
)

// describe writes files into a new folder and returns it.
func describe(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const ready = "ready: {url: 'http://127.0.0.1:10256/healthz'}\n"

// Plan and command do not contain the folder of the subject file, so that equal inputs give an equal history.
func TestExecPlanHasNoHostPath(t *testing.T) {
	var plans, commands []string
	for range 2 {
		dir := describe(t, map[string]string{"proxy": "#!/bin/sh\n", "subject.yaml": "program: proxy\n" + ready})
		o := Options{Scenario: "rollout", LabOptions: site.LabOptions{Subject: "exec:" + filepath.Join(dir, "subject.yaml"), Cache: t.TempDir()}}
		if err := o.fillDefaults(t.Context()); err != nil {
			t.Fatal(err)
		}
		p, _, err := o.plan(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		data, err := p.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		plans, commands = append(plans, string(data)), append(commands, o.command())
	}
	if plans[0] != plans[1] || commands[0] != commands[1] {
		t.Errorf("the same subject file in two folders gave different plans or commands:\n%q\n%q", plans, commands)
	}
	if !strings.Contains(plans[0], "/opt/subject/proxy") {
		t.Errorf("the plan does not contain the subject file: %s", plans[0])
	}
}

// A file that mounts control groups needs a site whose nodes have them; one that mounts something else does not.
func TestExecNeedsControlGroups(t *testing.T) {
	for mounts, sites := range map[string]map[string]bool{
		"[{kind: cgroup2, at: /run/groups}]": {"vm": true, "auto": true, "host": false},
		"[{kind: tmpfs, at: /run/groups}]":   {"vm": true, "auto": true, "host": true},
	} {
		file := filepath.Join(describe(t, map[string]string{"proxy": "#!/bin/sh\n", "subject.yaml": "program: proxy\n" + ready + "mounts: " + mounts + "\n"}), "subject.yaml")
		for kernel, allowed := range sites {
			o := Options{Scenario: "rollout", LabOptions: site.LabOptions{Subject: "exec:" + file, Kernel: kernel, Cache: t.TempDir()}}
			if err := o.fillDefaults(t.Context()); err != nil {
				t.Fatal(err)
			}
			p, _, err := o.plan(t.Context())
			if allowed && err != nil || !allowed && !slices.Contains(scenarios.Lacking(err), scenarios.NodeGroups) {
				t.Errorf("%s with --kernel %s gave %v", mounts, kernel, err)
			}
			if err == nil && (p.CheckHost() == nil) != sites["host"] {
				t.Errorf("%s with --kernel %s: the host may take it: %v", mounts, kernel, p.CheckHost())
			}
		}
	}
}

// kube-proxy in userspace mode has no health check for externalTrafficPolicy Local, as the subject and as what the proxies become.
func TestUserspaceModeServesClusterOnly(t *testing.T) {
	for _, c := range []struct {
		scenario, subject, to, policy string
		allowed                       bool
	}{
		{"rollout", "kube-proxy@v1.25.3/userspace", "", "Cluster", true},
		{"rollout", "kube-proxy@v1.25.3/userspace", "", "Local", false},
		{"rollout", "kube-proxy@v1.25.3/iptables", "", "Local", true},
		{"upgrade", "kube-proxy@v1.25.3/iptables", "kube-proxy@v1.25.3/userspace", "Cluster", true},
		{"upgrade", "kube-proxy@v1.25.3/iptables", "kube-proxy@v1.25.3/userspace", "Local", false},
	} {
		o := Options{Scenario: c.scenario, Set: map[string]string{"trafficPolicy": c.policy}, LabOptions: site.LabOptions{Subject: c.subject, Cache: t.TempDir()}}
		if c.to != "" {
			o.Set["to"] = c.to
		}
		if err := o.fillDefaults(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, _, err := o.plan(t.Context()); (err == nil) != c.allowed || err != nil && !SubjectLacks(err) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
