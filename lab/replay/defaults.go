package replay

import (
	"net/netip"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// setDefaults sets the defaults that proxies and scenarios rely on, such as the protocol of a Service port, without
// which kube-proxy writes invalid rules. It is not the full set of Kubernetes' defaults.
func setDefaults(u *unstructured.Unstructured) {
	switch u.GetKind() {
	case "Service":
		serviceDefaults(child(u.Object, "spec"))
		fill(child(u.Object, "status"), "loadBalancer", map[string]any{})
	case "EndpointSlice":
		for _, p := range children(u.Object, "ports") {
			fill(p, "name", "")
			fill(p, "protocol", "TCP")
		}
	case "Endpoints":
		for _, subset := range children(u.Object, "subsets") {
			for _, p := range children(subset, "ports") {
				fill(p, "protocol", "TCP")
			}
		}
	case "Pod":
		spec := child(u.Object, "spec")
		fill(spec, "restartPolicy", "Always")
		fill(spec, "terminationGracePeriodSeconds", int64(30))
		fill(child(u.Object, "status"), "phase", "Pending")
	case "Namespace":
		fill(child(u.Object, "status"), "phase", "Active")
	case "Deployment", "ReplicaSet":
		fill(child(u.Object, "spec"), "replicas", int64(1))
	}
}

func serviceDefaults(spec map[string]any) {
	fill(spec, "type", "ClusterIP")
	affinityDefaults(spec)
	for _, p := range children(spec, "ports") {
		fill(p, "protocol", "TCP")
		if target := p["targetPort"]; target == nil || target == int64(0) || target == "" {
			p["targetPort"] = p["port"]
		}
	}
	kind := spec["type"]
	if kind == "ExternalName" {
		return
	}
	fill(spec, "internalTrafficPolicy", "Cluster")
	if kind == "NodePort" || kind == "LoadBalancer" {
		fill(spec, "externalTrafficPolicy", "Cluster")
	}
	if kind == "LoadBalancer" {
		fill(spec, "allocateLoadBalancerNodePorts", true)
	}
	ip, ok := spec["clusterIP"].(string)
	if !ok || ip == "" {
		return
	}
	fill(spec, "clusterIPs", []any{ip})
	if _, selects := spec["selector"]; ip == "None" && !selects { // nobody knows of which family its endpoints will be
		fill(spec, "ipFamilyPolicy", "RequireDualStack")
		fill(spec, "ipFamilies", []any{"IPv4", "IPv6"})
	}
	fill(spec, "ipFamilyPolicy", "SingleStack")
	family := "IPv4"
	if a, err := netip.ParseAddr(ip); err == nil && a.Is6() {
		family = "IPv6"
	}
	fill(spec, "ipFamilies", []any{family})
}

// affinityDefaults sets the real server's defaults: kube-proxy ends on ClientIP affinity without a timeout.
func affinityDefaults(spec map[string]any) {
	fill(spec, "sessionAffinity", "None")
	switch spec["sessionAffinity"] {
	case "None":
		delete(spec, "sessionAffinityConfig")
	case "ClientIP":
		fill(child(child(spec, "sessionAffinityConfig"), "clientIP"), "timeoutSeconds", int64(10800))
	}
}

func fill(m map[string]any, key string, value any) {
	if _, set := m[key]; !set && m != nil && value != nil {
		m[key] = value
	}
}

// child returns the object under key and creates an empty one if there is none; nil if the value is of another type,
// which checkTypes reports.
func child(m map[string]any, key string) map[string]any {
	if m[key] == nil {
		m[key] = map[string]any{}
	}
	c, _ := m[key].(map[string]any)
	return c
}

func children(m map[string]any, key string) []map[string]any {
	items, _ := m[key].([]any)
	var found []map[string]any
	for _, item := range items {
		if c, ok := item.(map[string]any); ok {
			found = append(found, c)
		}
	}
	return found
}
