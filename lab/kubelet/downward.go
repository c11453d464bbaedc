package kubelet

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// lines are labels or annotations as files of the downward API have them.
func lines(values map[string]string) string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(values)) {
		all = append(all, fmt.Sprintf("%s=%q", key, values[key]))
	}
	return strings.Join(all, "\n")
}

// nodeResources are what a container without limits has.
var nodeResources = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("256Gi"),
	corev1.ResourceEphemeralStorage: resource.MustParse("1Ti")}

// resource returns a limit or request of a container, in units of the divisor, rounded up.
func (p *pod) resource(ref *corev1.ResourceFieldSelector, containerName string) (string, error) {
	if ref.ContainerName != "" {
		containerName = ref.ContainerName
	}
	for _, c := range p.all() {
		if c.spec.Name != containerName {
			continue
		}
		kind, name, _ := strings.Cut(ref.Resource, ".")
		amount, known := nodeResources[corev1.ResourceName(name)]
		switch limit, limited := c.spec.Resources.Limits[corev1.ResourceName(name)]; {
		case kind == "requests":
			amount = c.spec.Resources.Requests[corev1.ResourceName(name)]
		case kind == "limits" && limited:
			amount = limit
		case kind != "limits" || !known:
			return "", unsupported("the resource %s", ref.Resource)
		}
		divisor := ref.Divisor
		if divisor.IsZero() {
			divisor = resource.MustParse("1")
		}
		return fmt.Sprintf("%d", int64(math.Ceil(amount.AsApproximateFloat64()/divisor.AsApproximateFloat64()))), nil
	}
	return "", fmt.Errorf("the pod has no container %q, whose %s is wanted", containerName, ref.Resource)
}
