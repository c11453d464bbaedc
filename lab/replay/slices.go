package replay

import (
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	hostnameLabel = "kubernetes.io/hostname"
	zoneLabel     = "topology.kubernetes.io/zone"
)

// convert changes u, an object of resource r, to the given version in place. Only EndpointSlices differ between
// versions: v1 has zone, nodeName and deprecatedTopology; v1beta1 has nodeName and a topology map (from which
// kube-proxy 1.19 reads the host name). The rules are those of the real server (KEP-752, "conversion between v1beta1
// and v1").
func convert(r *resource, u *unstructured.Unstructured, version string) {
	from := u.GroupVersionKind().Version
	u.SetAPIVersion(schema.GroupVersion{Group: r.group, Version: version}.String())
	if r.kind != "EndpointSlice" || from == version {
		return
	}
	endpoints, _ := u.Object["endpoints"].([]any)
	for _, e := range endpoints {
		endpoint, ok := e.(map[string]any)
		switch {
		case !ok:
		case version == "v1beta1":
			endpointToBeta(endpoint)
		default:
			endpointFromBeta(endpoint)
		}
	}
}

func endpointToBeta(e map[string]any) {
	topology, _ := e["deprecatedTopology"].(map[string]any)
	topology = maps.Clone(topology)
	if topology == nil {
		topology = map[string]any{}
	}
	if zone, ok := e["zone"]; ok {
		topology[zoneLabel] = zone
	}
	if node, ok := e["nodeName"]; ok && topology[hostnameLabel] == nil {
		topology[hostnameLabel] = node
	}
	delete(e, "deprecatedTopology")
	delete(e, "zone")
	if len(topology) > 0 {
		e["topology"] = topology
	}
}

func endpointFromBeta(e map[string]any) {
	topology, _ := e["topology"].(map[string]any)
	topology = maps.Clone(topology)
	delete(e, "topology")
	if zone, ok := topology[zoneLabel]; ok {
		e["zone"] = zone
		delete(topology, zoneLabel)
	}
	if node, ok := topology[hostnameLabel]; ok && e["nodeName"] == node {
		delete(topology, hostnameLabel)
	}
	if len(topology) > 0 {
		e["deprecatedTopology"] = topology
	}
}
