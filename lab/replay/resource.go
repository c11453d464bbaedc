package replay

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// resource is a kind of object that the server knows.
type resource struct {
	group      string
	versions   []string // all served versions; the first is the preferred and the stored one
	plural     string
	kind       string
	namespaced bool
	status     bool     // has a status subresource
	evicted    bool     // has an eviction subresource
	proxied    bool     // has a proxy subresource
	counted    bool     // metadata.generation counts the changes of the spec
	returned   bool     // a delete is answered with the object, not with a Status
	untyped    bool     // objects are stored as they are given, and served in JSON only
	defines    bool     // its objects define custom resources
	review     bool     // create only: the answer is computed and nothing is stored
	fields     []string // supported fields of selectors, besides metadata.name and metadata.namespace
}

// resources lists the known resources in discovery order. Versions other than the stored one are for old clients:
// kube-proxy 1.19 and 1.20 use discovery.k8s.io/v1beta1 and events.k8s.io/v1beta1.
func resources() []*resource {
	return []*resource{
		core(resource{plural: "configmaps", kind: "ConfigMap", namespaced: true}),
		core(resource{plural: "endpoints", kind: "Endpoints", namespaced: true}),
		core(resource{plural: "events", kind: "Event", namespaced: true,
			fields: []string{"involvedObject.kind", "involvedObject.name", "involvedObject.namespace", "involvedObject.uid", "reason", "type"}}),
		core(resource{plural: "namespaces", kind: "Namespace", status: true, fields: []string{"status.phase"}}),
		core(resource{plural: "nodes", kind: "Node", status: true}),
		core(resource{plural: "pods", kind: "Pod", namespaced: true, status: true, evicted: true, proxied: true, counted: true, returned: true,
			fields: []string{"spec.nodeName", "spec.restartPolicy", "spec.serviceAccountName", "status.phase", "status.podIP"}}),
		core(resource{plural: "secrets", kind: "Secret", namespaced: true, fields: []string{"type"}}),
		core(resource{plural: "serviceaccounts", kind: "ServiceAccount", namespaced: true, returned: true}),
		core(resource{plural: "services", kind: "Service", namespaced: true, status: true, returned: true,
			fields: []string{"spec.clusterIP", "spec.type"}}),
		definitions(),
		{group: "apps", versions: []string{"v1"}, plural: "daemonsets", kind: "DaemonSet", namespaced: true, status: true, counted: true},
		{group: "apps", versions: []string{"v1"}, plural: "deployments", kind: "Deployment", namespaced: true, status: true, counted: true},
		{group: "apps", versions: []string{"v1"}, plural: "replicasets", kind: "ReplicaSet", namespaced: true, status: true, counted: true},
		{group: "authentication.k8s.io", versions: []string{"v1"}, plural: "tokenreviews", kind: "TokenReview", review: true},
		{group: "authorization.k8s.io", versions: []string{"v1"}, plural: "selfsubjectaccessreviews", kind: "SelfSubjectAccessReview", review: true},
		{group: "authorization.k8s.io", versions: []string{"v1"}, plural: "subjectaccessreviews", kind: "SubjectAccessReview", review: true},
		{group: "coordination.k8s.io", versions: []string{"v1"}, plural: "leases", kind: "Lease", namespaced: true},
		{group: "discovery.k8s.io", versions: []string{"v1", "v1beta1"}, plural: "endpointslices", kind: "EndpointSlice", namespaced: true, counted: true},
		{group: "events.k8s.io", versions: []string{"v1", "v1beta1"}, plural: "events", kind: "Event", namespaced: true},
		{group: "networking.k8s.io", versions: []string{"v1"}, plural: "networkpolicies", kind: "NetworkPolicy", namespaced: true, counted: true},
		{group: "networking.k8s.io", versions: []string{"v1", "v1beta1"}, plural: "servicecidrs", kind: "ServiceCIDR", status: true},
		{group: "policy", versions: []string{"v1"}, plural: "poddisruptionbudgets", kind: "PodDisruptionBudget", namespaced: true, status: true},
	}
}

func core(r resource) *resource {
	r.versions = []string{"v1"}
	return &r
}

// gvk returns the kind in the given version; an empty version means the stored one.
func (r *resource) gvk(version string) schema.GroupVersionKind {
	if version == "" {
		version = r.versions[0]
	}
	return schema.GroupVersionKind{Group: r.group, Version: version, Kind: r.kind}
}

func (r *resource) gr() schema.GroupResource {
	return schema.GroupResource{Group: r.group, Resource: r.plural}
}

// has reports whether the resource has a subresource; the empty name is the resource itself.
func (r *resource) has(subresource string) bool {
	return subresource == "" || subresource == "status" && r.status || subresource == "eviction" && r.evicted || subresource == "proxy" && r.proxied
}

func (r *resource) serves(group, version string) bool {
	return r.group == group && slices.Contains(r.versions, version)
}

// hasKind reports whether objects with this apiVersion and kind are of this resource and can be stored.
func (r *resource) hasKind(apiVersion, kind string) bool {
	gv, err := schema.ParseGroupVersion(apiVersion)
	return err == nil && r.kind == kind && !r.review && r.serves(gv.Group, gv.Version)
}

// is reports whether name is the resource's plural, such as services or endpointslices.
func (r *resource) is(name string) bool {
	return name == "" || name == r.plural || name == r.gr().String()
}
