package kube

import (
	"context"
	"net/netip"
	"strings"

	"github.com/hitless/hitless/lab/topology"
)

// Addresses of the control plane: the upstream ports; all except the API server listen on loopback only.
const (
	apiPort       = 6443
	managerPort   = 10257
	schedulerPort = 10259
	etcdClientURL = "http://127.0.0.1:2379"
	etcdPeerURL   = "http://127.0.0.1:2380"
)

const loopback = "127.0.0.1"

// environment is added for every program of the control plane. The collector runs a fifth as often: memory is plenty in
// the lab, and in an emulated guest every instruction is paid for.
var environment = []string{"GOGC=400"}

// DefaultControllers returns the controllers that a lab needs for Deployments, Services, drains and failed nodes.
// Others would only cost wake-ups and watches.
func DefaultControllers() []string {
	return []string{
		"deployment-controller", "replicaset-controller", // rollouts
		"daemonset-controller", "statefulset-controller", "job-controller", // the other workloads of e2e manifests
		"endpointslice-controller",         // what every proxy since 1.19 watches
		"endpoints-controller",             // what older proxies watch
		"serviceaccount-controller",        // makes the account without which no pod is admitted
		"namespace-controller",             // empties a namespace that is deleted
		"garbage-collector-controller",     // deletes the pods of a deleted Deployment
		"disruption-controller",            // budgets, which drains obey
		"node-lifecycle-controller",        // taints nodes whose leases end, lifts the taint of new ones
		"taint-eviction-controller",        // evicts pods from such nodes
		"pod-garbage-collector-controller", // removes pods of nodes that are gone
	}
}

// WorkloadControllers returns the controllers that e2e suites and programs in pods expect besides DefaultControllers.
func WorkloadControllers() []string {
	return []string{
		"root-ca-certificate-publisher-controller", // the ConfigMap that every pod's token comes with
		"serviceaccount-token-controller",          // tokens in Secrets
		"replicationcontroller-controller",         // older workloads
		"cronjob-controller",
		"resourcequota-controller",
		"endpointslice-mirroring-controller",   // slices for Endpoints that clients write
		"clusterrole-aggregation-controller",   // the roles view, edit and admin
		"ttl-after-finished-controller",        // deletes Jobs
		"horizontal-pod-autoscaler-controller", // tests of the API only: there are no metrics
	}
}

// startEtcd starts etcd with half the ticks and a hundredth of the batch commits of its defaults. A longer heartbeat
// would save more, but a lone member waits for one to ten of them until it leads.
func (c *ControlPlane) startEtcd(ctx context.Context) error {
	p, err := c.start(Etcd, []string{
		"--name=lab", "--data-dir=" + c.file("etcd"), "--unsafe-no-fsync=true",
		"--listen-client-urls=" + etcdClientURL, "--advertise-client-urls=" + etcdClientURL,
		"--listen-peer-urls=" + etcdPeerURL, "--initial-advertise-peer-urls=" + etcdPeerURL,
		"--initial-cluster=lab=" + etcdPeerURL, "--log-level=warn",
		"--heartbeat-interval=200", "--election-timeout=1000", "--backend-batch-interval=10s",
	})
	if err != nil {
		return err
	}
	return c.awaitHealthy(ctx, p, etcdClientURL+"/readyz")
}

// idleAdmission are the admission plugins that are turned off: each looks once a second whether a policy or webhook has
// come, and the lab has none. All other plugins are upstream's defaults.
const idleAdmission = "MutatingAdmissionPolicy,MutatingAdmissionWebhook,ValidatingAdmissionPolicy,ValidatingAdmissionWebhook"

func (c *ControlPlane) startAPIServer(ctx context.Context) error {
	address := topology.ControlAddr.String()
	args := []string{
		"--etcd-servers=" + etcdClientURL,
		"--bind-address=" + address, "--advertise-address=" + address, "--secure-port=" + port(apiPort),
		"--tls-cert-file=" + c.file("serving.crt"), "--tls-private-key-file=" + c.file("serving.key"),
		"--client-ca-file=" + c.file("ca.crt"), "--anonymous-auth=false", "--authorization-mode=RBAC",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + c.file("tokens.key"),
		"--service-account-signing-key-file=" + c.file("tokens.key"),
		"--service-cluster-ip-range=" + topology.ServiceCIDR.String(),
		"--allow-privileged=true", // as kubeadm: the pods of kube-proxy are privileged
		"--disable-admission-plugins=" + idleAdmission,
		"--watch-cache-sizes=" + uncachedFlag(),
		"--enable-priority-and-fairness=false", // a handful of clients, none of them hostile
		"--etcd-count-metric-poll-period=0", "--etcd-db-metric-poll-interval=0", "--profiling=false",
	}
	if c.config.Workloads {
		args = append(args, "--kubelet-preferred-address-types=InternalIP", "--kubelet-certificate-authority="+c.file("ca.crt"),
			"--kubelet-client-certificate="+c.file("kubelet-client.crt"), "--kubelet-client-key="+c.file("kubelet-client.key"))
	}
	p, err := c.start(APIServer, args)
	if err != nil {
		return err
	}
	return c.awaitHealthy(ctx, p, "https://"+netip.AddrPortFrom(topology.ControlAddr, apiPort).String()+"/readyz")
}

func (c *ControlPlane) startControllers(ctx context.Context) error {
	args := append(c.common(managerPort), "--controllers="+strings.Join(c.config.Controllers, ","), "--kube-api-qps=1000", "--kube-api-burst=1000")
	if c.config.Workloads {
		args = append(args, "--root-ca-file="+c.file("ca.crt"), "--service-account-private-key-file="+c.file("tokens.key"))
	}
	manager, err := c.start(ControllerManager, args)
	if err != nil {
		return err
	}
	scheduler, err := c.start(Scheduler, append(c.common(schedulerPort), "--kube-api-qps=1000", "--kube-api-burst=1000"))
	if err != nil {
		return err
	}
	if err := c.awaitHealthy(ctx, manager, "https://"+loopback+":"+port(managerPort)+"/healthz"); err != nil {
		return err
	}
	return c.awaitHealthy(ctx, scheduler, "https://"+loopback+":"+port(schedulerPort)+"/healthz")
}

// common are the flags that the controller manager and the scheduler share. They get the API server's certificate,
// because otherwise each makes an RSA key of its own at start.
func (c *ControlPlane) common(number uint16) []string {
	return []string{
		"--kubeconfig=" + c.Kubeconfig, "--leader-elect=false", "--profiling=false",
		"--bind-address=" + loopback, "--secure-port=" + port(number),
		"--tls-cert-file=" + c.file("serving.crt"), "--tls-private-key-file=" + c.file("serving.key"),
		"--authentication-skip-lookup=true",
	}
}
