package kube

import "strings"

// uncached are the resources whose watch cache is off; the API server reads them from etcd. A watch cache costs about
// one wake-up a second per resource (its bookmark timer), and there are seventy. All resources that proxies,
// controllers and scenarios watch keep their cache.
var uncached = []struct{ group, resources string }{
	{"", "persistentvolumes persistentvolumeclaims podtemplates limitranges resourcequotas replicationcontrollers " +
		"secrets configmaps"},
	{"admissionregistration.k8s.io", "mutatingadmissionpolicies mutatingadmissionpolicybindings " +
		"mutatingwebhookconfigurations validatingadmissionpolicies validatingadmissionpolicybindings " +
		"validatingwebhookconfigurations"},
	{"apiextensions.k8s.io", "customresourcedefinitions"},
	{"apiregistration.k8s.io", "apiservices"},
	{"autoscaling", "horizontalpodautoscalers"},
	{"batch", "cronjobs"},
	{"certificates.k8s.io", "certificatesigningrequests clustertrustbundles podcertificaterequests"},
	{"coordination.k8s.io", "leasecandidates"},
	{"flowcontrol.apiserver.k8s.io", "flowschemas prioritylevelconfigurations"},
	{"internal.apiserver.k8s.io", "storageversions"},
	{"networking.k8s.io", "ingresses ingressclasses networkpolicies"},
	{"node.k8s.io", "runtimeclasses"},
	{"rbac.authorization.k8s.io", "clusterroles clusterrolebindings roles rolebindings"},
	{"resource.k8s.io", "deviceclasses devicetaintrules resourceclaims resourceclaimtemplates resourceslices"},
	{"storage.k8s.io", "csidrivers csinodes csistoragecapacities storageclasses volumeattachments " +
		"volumeattributesclasses"},
	{"storagemigration.k8s.io", "storageversionmigrations"},
}

// uncachedFlag returns the value of --watch-cache-sizes; size 0 turns a resource's cache off.
func uncachedFlag() string {
	var sizes []string
	for _, u := range uncached {
		for _, resource := range strings.Fields(u.resources) {
			if u.group != "" {
				resource += "." + u.group
			}
			sizes = append(sizes, resource+"#0")
		}
	}
	return strings.Join(sizes, ",")
}
