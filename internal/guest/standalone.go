package guest

import (
	"os"
	"slices"
	"time"

	"github.com/hitless/hitless/internal/bench"
	"github.com/hitless/hitless/lab/subject"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios"
)

const (
	// Program is the path of hitless in the guest.
	Program = "/usr/bin/hitless"
	// Binaries is the folder of the built programs in the guest.
	Binaries = "/usr/bin"
	// NodeFiles is the folder with the files in directories that each node has for itself: see topology.Config.
	NodeFiles = "/usr/lib/hitless-node"
	// curlPath is the program of the loop in the guest.
	curlPath = "/usr/bin/curl"
)

// standalone is a program that a guest runs without a scenario of package scenarios.
type standalone struct {
	subjects bool                                              // needs the programs of the control plane and of the subjects
	unjudged bool                                              // package run starts it and computes no verdict
	virtual  bool                                              // needs the virtual clock of a VM
	modules  []string                                          // of the kernel, besides those of every guest
	check    func(set map[string]string, s subject.Spec) error // refuses parameters; nil for none
}

// standalones describes the standalone programs by the scenario of their plans; see runners.
var standalones = map[string]standalone{
	TryScenario:     {},
	LabScenario:     {subjects: true, modules: []string{"virtio_net"}},
	bench.Scenario:  {subjects: true},
	routingScenario: {subjects: true, unjudged: true, modules: []string{"sctp", "xt_sctp"}, check: checkRoutingParameters},
	costScenario:    {subjects: true, unjudged: true, virtual: true, check: checkCostParameters},
}

// Unjudged reports whether a scenario is a standalone program whose history gets no verdict.
func Unjudged(scenario string) bool { return standalones[scenario].unjudged }

// NeedsVirtualClock reports whether the times of a standalone program mean something on the virtual clock of a VM only.
func NeedsVirtualClock(scenario string) bool { return standalones[scenario].virtual }

// CheckStandalone refuses parameters and subjects that a standalone program cannot run with. A scenario has its own checks.
func CheckStandalone(scenario string, set map[string]string, s subject.Spec) error {
	if check := standalones[scenario].check; check != nil {
		return check(set, s)
	}
	return nil
}

// Modules are the modules that the plan needs of the kernel, besides those of every guest.
func (p Plan) Modules() []string {
	all := standalones[p.Scenario].modules
	if p.Exec != nil {
		all = slices.Concat(all, p.Exec.Modules)
	}
	return all
}

// TryScenario tests in a small network what a kernel supports. Its parameter `need` lists ipvs, iptables and nftables, separated by
// commas; the network itself is always tested. The reason of the run is the first failure.
const TryScenario = "try"

// LabScenario keeps a lab up for other programs. On the host its runner gets a listener, whose connections it forwards to the API
// server, and a unix socket, to which it sends a LabReady and the client's network namespace. In a VM it writes the LabReady into the
// region before it announces a checkpoint, and its network device is a link to the client.
const LabScenario = "lab"

// ReadyFile is the file in the region of a VM that has the LabReady.
const ReadyFile = "ready.json"

// LabReady is the message to the host when the lab is up.
type LabReady struct {
	Kubeconfig []byte `json:"kubeconfig"` // of the administrator, with the address of the lab's own network
	Server     string `json:"server"`     // that address, with its port
}

// Stopped is the end of a run that was asked to stop at an instant.
const Stopped = "stopped, as was asked for"

// KernelStateDir is the directory of the dumps in a run's directory.
func KernelStateDir(at time.Duration) string { return "at-" + at.String() }

// ObjectBytes is the memory for an object of a timeline, nearly all of it in the runner with its control plane, controllers, kubelets
// and load balancer.
const ObjectBytes = 100 << 10

// Offers are the capabilities of a lab with that control plane, kube or replay, and that kernel: KernelHost, or another word for a
// VM.
func Offers(controlPlane, kernel string) scenarios.Offers {
	offers := scenarios.Offers{scenarios.RestartableProxies, scenarios.PowerControl, scenarios.NodeCommands, scenarios.OwnLoadBalancer, scenarios.SameAddresses,
		scenarios.ClientPlacement, scenarios.PodLanes, scenarios.DatagramBackends, scenarios.Journal, scenarios.ManyServices, scenarios.OwnNodes}
	if kernel != KernelHost {
		offers = append(offers, scenarios.NodeGroups)
	}
	if controlPlane == record.ControlReplay {
		offers = append(offers, scenarios.ControllableAPI)
		if kernel != KernelHost || hostHasIPv6() {
			offers = append(offers, scenarios.AddressFamilies)
		}
	}
	return offers
}

// hostHasIPv6 reports whether the kernel of this machine has IPv6.
func hostHasIPv6() bool {
	_, err := os.Stat("/proc/sys/net/ipv6")
	return err == nil
}
