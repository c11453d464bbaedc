// Package foreign tests what this project ships for clusters with the libraries of Helm, Kustomize, Pod Security and crane.
package foreign

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

const base = "../soak"

// The chart with default values renders the objects of the base, except for Helm's labels.
func TestChartRendersBase(t *testing.T) {
	all, notes := rendered(t, "hitless", "")
	want := kustomized(t, base)
	delete(want, "Namespace/hitless") // helm makes that one, or its user
	for _, set := range []objects{all, want} {
		for _, object := range set {
			withoutHelm(object)
		}
	}
	if d := cmp.Diff(want, all); d != "" {
		t.Errorf("the base (-) and the chart (+):\n%s", d)
	}
	if len(all) != 6 || !strings.Contains(notes, "hitless-rollout: rollout at 17 * * * *") {
		t.Errorf("%d objects, and the notes:\n%s", len(all), notes)
	}
}

// With shards the chart also renders the objects of deploy/shards, for its own namespace.
func TestChartRendersShards(t *testing.T) {
	all, _ := rendered(t, "hitless", "runs: []\nreports: {enabled: false}\nshards: {enabled: true}")
	want := kustomized(t, "../shards")
	for name, object := range want {
		got := all[name]
		if name == "Namespace/hitless-shards" {
			continue
		}
		if got == nil {
			t.Errorf("the chart renders no %s: %q", name, slices.Sorted(maps.Keys(all)))
			continue
		}
		object.(metav1.Object).SetNamespace("hitless")
		withoutHelm(object)
		withoutHelm(got)
		if d := cmp.Diff(object, got); d != "" {
			t.Errorf("%s of the base (-) and of the chart (+):\n%s", name, d)
		}
	}
	if len(want) != 4 {
		t.Errorf("the base has %q", slices.Sorted(maps.Keys(want)))
	}
}

// Each index of the Job is another shard of as many as there are, and the merge reads the folder of each.
func TestShardsAreThoseOfTheMerge(t *testing.T) {
	all, _ := rendered(t, "x", "shards: {enabled: true, count: 3, args: [soak, --seeds=1..9], existingClaim: shared}")
	shards, merge := all["Job/x-shards"].(*batchv1.Job).Spec, all["Job/x-merge"].(*batchv1.Job).Spec
	if *shards.Completions != 3 || *shards.Parallelism != 3 || *shards.CompletionMode != batchv1.IndexedCompletion || !*merge.Suspend || all["PersistentVolumeClaim/x-shards"] != nil {
		t.Errorf("%+v\n%+v", shards, merge)
	}
	args := shards.Template.Spec.Containers[0].Args
	if want := []string{"soak", "--seeds=1..9", "--shard=index-$(JOB_COMPLETION_INDEX)/3", "--out=/data/shard-$(JOB_COMPLETION_INDEX)"}; !slices.Equal(args, want) {
		t.Errorf("a shard has the arguments %q, want %q", args, want)
	}
	args = merge.Template.Spec.Containers[0].Args
	if want := []string{"merge", "/data/shard-0", "/data/shard-1", "/data/shard-2", "--out=/data/whole"}; !slices.Equal(args, want) {
		t.Errorf("the merge has the arguments %q, want %q", args, want)
	}
}

// Each value of the shards is in their Job, and those of all pods are in the merge too: it must be able to run where the shards ran.
func TestShardsHaveTheValues(t *testing.T) {
	all, _ := rendered(t, "x", `
image: {repository: registry.example.com/hitless, tag: v1, pullPolicy: Always}
imagePullSecrets: [{name: pull}]
nodeSelector: {pool: labs}
tolerations: [{operator: Exists}]
runs: []
reports: {enabled: false}
shards: {enabled: true, image: "debian:13", deadline: 60, size: 7Gi, storageClassName: shared, resources: {requests: {cpu: "3"}}}
`)
	shards, merge, claim := all["Job/x-shards"].(*batchv1.Job).Spec, all["Job/x-merge"].(*batchv1.Job).Spec, all["PersistentVolumeClaim/x-shards"].(*corev1.PersistentVolumeClaim).Spec
	for name, pod := range map[string]corev1.PodSpec{"shards": shards.Template.Spec, "merge": merge.Template.Spec} {
		if pod.NodeSelector["pool"] != "labs" || len(pod.Tolerations) != 1 || len(pod.ImagePullSecrets) != 1 || pod.Containers[0].Resources.Requests.Cpu().IsZero() {
			t.Errorf("%s: %+v", name, pod)
		}
	}
	shard := shards.Template.Spec
	if c := shard.Containers[0]; c.Image != "debian:13" || c.Resources.Requests.Cpu().String() != "3" || *shards.ActiveDeadlineSeconds != 60 ||
		shard.Volumes[0].Image.Reference != "registry.example.com/hitless:v1" || shard.Volumes[0].Image.PullPolicy != corev1.PullAlways {
		t.Errorf("the shards are %+v", shards)
	}
	if c := merge.Template.Spec.Containers[0]; c.Image != "registry.example.com/hitless:v1" || c.ImagePullPolicy != corev1.PullAlways {
		t.Errorf("the merge is %+v", c)
	}
	if claim.Resources.Requests.Storage().String() != "7Gi" || *claim.StorageClassName != "shared" {
		t.Errorf("the claim is %+v", claim)
	}
}

// withoutHelm removes the labels that only the chart has.
func withoutHelm(object runtime.Object) {
	all := []map[string]string{object.(metav1.Object).GetLabels()}
	switch o := object.(type) {
	case *batchv1.Job:
		all = append(all, o.Spec.Template.Labels)
	case *batchv1.CronJob:
		pod := &o.Spec.JobTemplate.Spec.Template
		all = append(all, pod.Labels, pod.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].LabelSelector.MatchLabels)
	case *appsv1.Deployment:
		all = append(all, o.Spec.Selector.MatchLabels, o.Spec.Template.Labels)
	}
	for _, labels := range all {
		maps.DeleteFunc(labels, func(key, _ string) bool {
			return slices.Contains([]string{"app.kubernetes.io/instance", "app.kubernetes.io/managed-by", "helm.sh/chart"}, key)
		})
	}
}

func podsOf(all objects) map[string]*corev1.PodTemplateSpec {
	pods := map[string]*corev1.PodTemplateSpec{}
	for name, object := range all {
		switch o := object.(type) {
		case *batchv1.CronJob:
			pods[name] = &o.Spec.JobTemplate.Spec.Template
		case *appsv1.Deployment:
			pods[name] = &o.Spec.Template
		}
	}
	return pods
}

// restricted evaluates a pod by the rules of Pod Security, as the API server does, and returns the violations.
func restricted(t *testing.T, pod *corev1.PodTemplateSpec) string {
	t.Helper()
	rules, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var broken []string
	for _, r := range rules.EvaluatePod(api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}, &pod.ObjectMeta, &pod.Spec) {
		if !r.Allowed {
			broken = append(broken, r.ForbiddenReason+" ("+r.ForbiddenDetail+")")
		}
	}
	return strings.Join(broken, ", ")
}

// Pod Security `restricted` admits every pod of the manifests, and rejects one that could become root.
func TestPodsAreRestricted(t *testing.T) {
	pods := podsOf(kustomized(t, base))
	if len(pods) != 2 {
		t.Fatalf("%d kinds of pods, want the runs and the reports", len(pods))
	}
	for name, pod := range pods {
		if broken := restricted(t, pod); broken != "" {
			t.Errorf("%s: %s", name, broken)
		}
		pod.Spec.Containers[0].SecurityContext.AllowPrivilegeEscalation = nil
		if restricted(t, pod) == "" {
			t.Errorf("%s: a container that may become root was admitted", name)
		}
	}
}

// Each value of the user is in its object, and in no other.
func TestChartValues(t *testing.T) {
	all, _ := rendered(t, "soak", `
image: {repository: registry.example.com/team/hitless, tag: v1}
imagePullSecrets: [{name: pull}]
runs:
- {name: a, schedule: "@daily", scenario: rollout, args: ["--set=rollouts=1"], deadline: 60}
- {name: b, schedule: "@weekly", scenario: quiet, suspend: true, args: ["--context=\"x\" y"]}
rbac: {create: false}
serviceAccount: {create: false, name: theirs}
storage: {existingClaim: shared, accessMode: ReadWriteMany}
nodeSelector: {pool: probes}
tolerations: [{operator: Exists}]
resources: {requests: {cpu: "3"}}
reports: {resources: {requests: {cpu: 30m}}}
`)
	if names := slices.Sorted(maps.Keys(all)); !slices.Equal(names, []string{"CronJob/soak-a", "CronJob/soak-b", "Deployment/soak-reports"}) {
		t.Fatalf("the chart renders %q", names)
	}
	a, b := all["CronJob/soak-a"].(*batchv1.CronJob), all["CronJob/soak-b"].(*batchv1.CronJob)
	if a.Spec.Schedule != "@daily" || *a.Spec.JobTemplate.Spec.ActiveDeadlineSeconds != 60 || a.Spec.Suspend != nil || b.Spec.Suspend == nil || !*b.Spec.Suspend {
		t.Errorf("%+v\n%+v", a.Spec, b.Spec)
	}
	if *b.Spec.JobTemplate.Spec.ActiveDeadlineSeconds != 3000 {
		t.Error("a run without a deadline does not have the default")
	}
	args := b.Spec.JobTemplate.Spec.Template.Spec.Containers[0].Args
	if want := []string{"run", "quiet", "--in-cluster", "--openmetrics", "--out=/data/$(POD_NAME)", `--context="x" y`}; !slices.Equal(args, want) {
		t.Errorf("the arguments are %q, want %q", args, want)
	}
	for name, pod := range podsOf(all) {
		s := pod.Spec
		if s.Containers[0].Image != "registry.example.com/team/hitless:v1" || len(s.ImagePullSecrets) != 1 || s.NodeSelector["pool"] != "probes" || len(s.Tolerations) != 1 ||
			s.Volumes[0].PersistentVolumeClaim.ClaimName != "shared" || s.Affinity != nil {
			t.Errorf("%s: %+v", name, s)
		}
		if job := strings.HasPrefix(name, "CronJob"); job != (s.ServiceAccountName == "theirs") || job != (s.Containers[0].Resources.Requests.Cpu().String() == "3") {
			t.Errorf("%s has the service account %q and %v", name, s.ServiceAccountName, s.Containers[0].Resources)
		}
	}
	if cpu := all["Deployment/soak-reports"].(*appsv1.Deployment).Spec.Template.Spec.Containers[0].Resources.Requests.Cpu(); cpu.String() != "30m" {
		t.Errorf("the reports request %s of CPU", cpu)
	}
	all, _ = rendered(t, "soak", `rbac: {extraRules: [{apiGroups: [""], resources: [pods/status], verbs: [patch]}]}`)
	rules := all["ClusterRole/soak"].(*rbacv1.ClusterRole).Rules
	if last := rules[len(rules)-1]; len(rules) < 3 || last.Resources[0] != "pods/status" {
		t.Errorf("the rules are %+v", rules)
	}
	if all, _ := rendered(t, "soak", "runs: []\nreports: {enabled: false}"); len(all) != 4 {
		t.Errorf("without runs and reports the chart renders %d objects: %q", len(all), slices.Sorted(maps.Keys(all)))
	}
}

// The chart's dashboard and rules are those of deploy/watch, as they are: their own braces are not Helm's.
func TestChartHasTheMonitoringOfAWatch(t *testing.T) {
	all, _ := rendered(t, "edge", "monitoring: {dashboard: true, rules: true}")
	for name, file := range map[string]string{"ConfigMap/edge-dashboard": "dashboard.json", "ConfigMap/edge-rules": "alerts.yaml"} {
		want, err := os.ReadFile(filepath.Join("../watch", file))
		if err != nil {
			t.Fatal(err)
		}
		config, is := all[name].(*corev1.ConfigMap)
		if !is || len(config.Data) != 1 {
			t.Fatalf("%s is %+v", name, all[name])
		}
		for _, text := range config.Data {
			if strings.TrimSpace(text) != strings.TrimSpace(string(want)) {
				t.Errorf("%s differs from %s", name, file)
			}
		}
	}
}

// Helm silently accepts an unknown value; the chart's schema refuses it.
func TestWrongValuesAreRefused(t *testing.T) {
	for values, want := range map[string]string{
		"image: {repo: x}":                                                "repo",
		"runs: [{name: a, schedule: x}]":                                  "scenario",
		"runs: [{name: A_b, schedule: x, scenario: quiet}]":               "name",
		"runs: [{name: a, schedule: x, scenario: quiet, deadline: soon}]": "deadline",
		"storage: {accessMode: ReadOnlyMany}":                             "accessMode",
		"report: {enabled: false}":                                        "report",
		"shards: {enabled: true, count: 0}":                               "count",
	} {
		if _, err := render("hitless", values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error with %s", values, err, want)
		}
	}
}

// The overlay in the comment of the base sets the image of both pods.
func TestAnOverlayNamesTheImage(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	here, err := filepath.Abs(base)
	if err != nil {
		t.Fatal(err)
	}
	to, err := filepath.Rel(dir, here)
	if err != nil {
		t.Fatal(err)
	}
	overlay := "resources: [" + to + "]\nimages: [{name: hitless, newName: registry.example.com/team/hitless, newTag: v1}]\n"
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(overlay), 0o644); err != nil {
		t.Fatal(err)
	}
	pods := podsOf(kustomized(t, dir))
	for name, pod := range pods {
		if got := pod.Spec.Containers[0].Image; got != "registry.example.com/team/hitless:v1" {
			t.Errorf("%s runs %s", name, got)
		}
	}
	if len(pods) != 2 {
		t.Errorf("%d kinds of pods", len(pods))
	}
}
