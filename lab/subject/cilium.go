package subject

import (
	"slices"
	"strconv"
	"time"

	"github.com/hitless/hitless/lab/topology"
)

// cilium is Cilium as a replacement of kube-proxy, in BPF. The lab's pods have their links and addresses from the lab.
var cilium = dataPlane{
	name:     "cilium",
	versions: []string{"v1.15.6", "v1.15.19", "v1.20.2"},
	exec:     ciliumExec,
	owned: []string{"k8s-kubeconfig-path", "k8s-api-server", "kube-proxy-replacement", "kube-proxy-replacement-healthz-bind-address",
		"cgroup-root", "bpf-root", "state-dir", "lib-dir", "devices", "ipv4-native-routing-cidr", "config-dir", "config"},
}

// The paths of Cilium in the guest.
const (
	ciliumAgent = ExecDir + "/cilium-agent"
	ciliumCNI   = ExecDir + "/cilium-cni"
)

func ciliumExec(version string) Exec {
	old := version < "v1.16"
	// From 1.16 on the agent refuses to replace kube-proxy without its rules of iptables.
	args := append(slices.Clone(ciliumArgs), "--install-iptables-rules="+strconv.FormatBool(!old))
	var flags []string
	if old {
		args = append(args, "--enable-k8s-terminating-endpoint={terminatingFallbackBool}")
		// Up to 1.15 the sources are for clang 17, in which -Wimplicit-int-conversion does not imply it.
		flags = []string{"-Wno-shorten-64-to-32"}
	} else {
		args = append(args, "--bpf-policy-stats-map-max=1024") // as the maps of ciliumArgs
	}
	return Exec{
		Mode: "ebpf", Program: ciliumAgent, Args: args, Env: ciliumEnv,
		TimerSlack: 4 * time.Millisecond, // a tick: else three agents end 3,600 sleeps per second, most of them of Go's scheduler
		Ready:      Ready{URL: "http://127.0.0.1:10256/healthz", Within: 5 * time.Minute},
		Stop:       Stop{Signal: "TERM", Within: 30 * time.Second},
		Modules:    []string{"act_bpf", "algif_hash", "cls_bpf", "sch_ingress", "vxlan", "xfrm_algo", "xfrm_user", "xt_CT", "xt_socket"},
		Mounts:     []Mount{{Kind: Cgroup2, At: "/run/cilium/cgroupv2"}}, // where its images mount it
		Tables:     CiliumMaps,
		CNI:        &CNI{ciliumCNI, `{"cniVersion":"0.3.1","name":"generic-veth","type":"cilium-cni","chaining-mode":"generic-veth"}`},
		Pack:       Pack{Tools: []string{"bpftool", "iptables", "sh"}},
		Recipe: &Recipe{
			Version:  version,
			Programs: map[string]string{"cilium-agent": ciliumAgent, "cilium-cni": ciliumCNI}, Main: "cilium-agent",
			Module:  "github.com/cilium/cilium",
			Folders: []Folder{{From: "bpf", To: "/var/lib/cilium/bpf", Left: []string{"tests", "complexity-tests", "custom", "tools", "test-progs"}}},
			Objects: "pkg/k8s/apis/cilium.io/client/crds",
			Manifests: []string{"ciliumcidrgroups.yaml", "ciliumclusterwidenetworkpolicies.yaml", "ciliumendpoints.yaml", "ciliumidentities.yaml",
				"ciliuml2announcementpolicies.yaml", "ciliumloadbalancerippools.yaml", "ciliumnetworkpolicies.yaml", "ciliumnodes.yaml", "ciliumpodippools.yaml"},
			Compiler: &Compiler{"/usr/bin/clang", flags},
		},
	}
}

// ciliumEnv is the agents' environment. They share the guest's one CPU, so garbage is collected less often.
var ciliumEnv = []string{"CILIUM_K8S_NAMESPACE=kube-system", "GOGC=400", "GOMEMLIMIT=700MiB", "K8S_NODE_NAME={node}"}

// ciliumArgs are the agent's flags. The lab routes between nodes and to pods, and has no tunnel, no proxy in layer 7 and no operator.
var ciliumArgs = []string{
	"--k8s-kubeconfig-path={kubeconfig}",
	"--cluster-name=default",
	"--kube-proxy-replacement=true",
	"--kube-proxy-replacement-healthz-bind-address=0.0.0.0:10256",
	"--cgroup-root=/run/cilium/cgroupv2",
	"--enable-ipv4=true",
	"--enable-ipv6=false",
	"--routing-mode=native",
	"--ipv4-native-routing-cidr=" + topology.ClusterCIDR.String(), // one range, also in a dual-stack lab
	"--auto-direct-node-routes=false",
	"--devices={devices}",
	"--direct-routing-device={nodeDevice}",
	"--ipam=kubernetes",
	"--enable-local-node-route=false", // else Cilium takes over the route to the pods' bridge
	"--enable-endpoint-routes=true",
	"--local-router-ipv4=169.254.23.1",
	"--enable-l7-proxy=false",
	"--enable-policy=never",
	"--enable-hubble=false",
	"--enable-health-checking=false",
	"--enable-endpoint-health-checking=false",
	"--enable-ipv4-masquerade=false",
	"--identity-allocation-mode=crd",
	"--disable-endpoint-crd=true",
	"--bpf-map-dynamic-size-ratio=0",
	"--bpf-ct-global-tcp-max=65536",
	"--bpf-ct-global-any-max=32768",
	"--bpf-nat-global-max=65536", // at most the two above
	// The kernel makes all entries of these when an agent starts, at most half a million.
	"--bpf-neigh-global-max=1024",
	"--bpf-sock-rev-map-max=16384",
	"--bpf-auth-map-max=1024",
	"--preallocate-bpf-maps=false",
	"--enable-xt-socket-fallback=false",
	"--enable-bpf-clock-probe=false",
	"--k8s-sync-timeout=3m",
}
