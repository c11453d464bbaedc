package replay

import (
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
)

// GitVersion is the version at /version. Clients only compare its numbers.
const GitVersion = "v1.37.1-hitless-replay"

// discover answers discovery and health requests; false for other paths. Only the unaggregated form exists: clients
// that prefer the aggregated one (apidiscovery.k8s.io) accept it.
func (s *Server) discover(w http.ResponseWriter, path []string) bool {
	switch {
	case len(path) == 1 && slices.Contains([]string{"healthz", "livez", "readyz"}, path[0]):
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte("ok")) // a client that has gone away needs no answer
	case len(path) == 1 && path[0] == "version":
		writeJSON(w, http.StatusOK, version.Info{Major: "1", Minor: "37", GitVersion: GitVersion, Platform: "linux/amd64"})
	case len(path) == 1 && path[0] == "api":
		writeJSON(w, http.StatusOK, metav1.APIVersions{
			TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"},
			ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{},
		})
	case len(path) == 1 && path[0] == "apis":
		writeJSON(w, http.StatusOK, metav1.APIGroupList{
			TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: s.groups(),
		})
	case len(path) == 2 && path[0] == "apis":
		groups := s.groups()
		i := slices.IndexFunc(groups, func(g metav1.APIGroup) bool { return g.Name == path[1] })
		if i < 0 {
			return false
		}
		groups[i].TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
		writeJSON(w, http.StatusOK, groups[i])
	default:
		group, version, rest := splitAPI(path)
		list := s.resourceList(group, version)
		if version == "" || len(rest) > 0 || len(list.APIResources) == 0 {
			return false
		}
		writeJSON(w, http.StatusOK, list)
	}
	return true
}

// splitAPI splits the group and version off a path; version is empty if the path has none.
func splitAPI(path []string) (group, version string, rest []string) {
	switch {
	case len(path) >= 2 && path[0] == "api":
		return "", path[1], path[2:]
	case len(path) >= 3 && path[0] == "apis":
		return path[1], path[2], path[3:]
	}
	return "", "", nil
}

// groups returns the named API groups in the order of resources.
func (s *Server) groups() []metav1.APIGroup {
	var groups []metav1.APIGroup
	for _, st := range s.served() {
		if st.group == "" || slices.ContainsFunc(groups, func(g metav1.APIGroup) bool { return g.Name == st.group }) {
			continue
		}
		g := metav1.APIGroup{Name: st.group}
		for _, v := range st.versions {
			gv := schema.GroupVersion{Group: st.group, Version: v}
			g.Versions = append(g.Versions, metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: v})
		}
		g.PreferredVersion = g.Versions[0]
		groups = append(groups, g)
	}
	return groups
}

func (s *Server) resourceList(group, version string) metav1.APIResourceList {
	list := metav1.APIResourceList{
		TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
		GroupVersion: schema.GroupVersion{Group: group, Version: version}.String(),
	}
	for _, st := range s.served() {
		if !st.serves(group, version) {
			continue
		}
		r := metav1.APIResource{
			Name: st.plural, SingularName: strings.ToLower(st.kind), Kind: st.kind, Namespaced: st.namespaced,
			Verbs: metav1.Verbs{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"},
		}
		switch {
		case st.review:
			r.Verbs = metav1.Verbs{"create"}
		case st.kind == "Namespace": // nobody deletes them all at once
			r.Verbs = metav1.Verbs{"create", "delete", "get", "list", "patch", "update", "watch"}
		}
		list.APIResources = append(list.APIResources, r)
		if st.status {
			r.Name, r.Verbs = r.Name+"/status", metav1.Verbs{"get", "patch", "update"}
			list.APIResources = append(list.APIResources, r)
		}
		if st.evicted {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: st.plural + "/eviction", SingularName: r.SingularName, Namespaced: true,
				Group: "policy", Version: "v1", Kind: "Eviction", Verbs: metav1.Verbs{"create"}})
		}
		if st.proxied {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: st.plural + "/proxy", SingularName: r.SingularName, Namespaced: true,
				Kind: "PodProxyOptions", Verbs: metav1.Verbs{"get"}})
		}
	}
	return list
}
