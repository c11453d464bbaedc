package scenarios

import (
	"context"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/e2e-framework/klient/k8s"

	"github.com/hitless/hitless/record"
)

// Site is where a run takes place: a client and faults, which each site has, and the capabilities that were added with
// Offer. A capability that was not added is returned as an error, never as a nil interface.
type Site struct {
	client Client
	faults Faults
	offers Offers
	parts  map[Capability]any
}

// NewSite makes a site without capabilities.
func NewSite(client Client, faults Faults) *Site {
	return &Site{client: client, faults: faults, parts: map[Capability]any{}}
}

// Offer adds capabilities that need no code of the site.
func (s *Site) Offer(all ...Capability) *Site {
	for _, c := range all {
		s.add(c, nil)
	}
	return s
}

func (s *Site) add(c Capability, part any) *Site {
	if !s.offers.Has(c) {
		s.offers = append(s.offers, c)
	}
	s.parts[c] = part
	return s
}

// OfferProxies adds RestartableProxies.
func (s *Site) OfferProxies(p Proxies) *Site { return s.add(RestartableProxies, p) }

// OfferPower adds PowerControl.
func (s *Site) OfferPower(p Power) *Site { return s.add(PowerControl, p) }

// OfferCommands adds NodeCommands.
func (s *Site) OfferCommands(c Commands) *Site { return s.add(NodeCommands, c) }

// OfferControlPlane adds ControllableAPI.
func (s *Site) OfferControlPlane(c ControlPlane) *Site { return s.add(ControllableAPI, c) }

// OfferLoadBalancer adds OwnLoadBalancer. Faults of the site can then be of each kind, and on a single node.
func (s *Site) OfferLoadBalancer(b LoadBalancer) *Site { return s.add(OwnLoadBalancer, b) }

// OfferPodLanes adds PodLanes.
func (s *Site) OfferPodLanes(p PodProber) *Site { return s.add(PodLanes, p) }

// OfferMarks adds MarkedChanges.
func (s *Site) OfferMarks(m Marks) *Site { return s.add(MarkedChanges, m) }

// OfferTargets adds SiteTargets.
func (s *Site) OfferTargets(t Targets) *Site { return s.add(SiteTargets, t) }

// OfferJournal adds Journal.
func (s *Site) OfferJournal(j JournalWriter) *Site { return s.add(Journal, j) }

// Offers are the capabilities of the site.
func (s *Site) Offers() Offers {
	if s == nil {
		return nil
	}
	return s.offers
}

// part returns a capability, or an error where the site does not offer it.
func part[T any](s *Site, c Capability) (T, error) {
	var none T
	if s != nil {
		if p, is := s.parts[c].(T); is {
			return p, nil
		}
	}
	return none, fmt.Errorf("this site does not offer %s: %s", c, c.Meaning())
}

// Client is the place where the lanes start.
type Client interface {
	// Reach makes one attempt at address:port over tcp or udp, and returns why it got no answer.
	Reach(ctx context.Context, network, target string) error
	// Hold opens one connection to address:port and keeps it open.
	Hold(ctx context.Context, target string) (io.Closer, error)
	// Over makes one attempt of a single family at the first port of a Service through the proxy of one node, past every load
	// balancer, and returns why it got no answer. A live cluster has its own families. It may be called concurrently.
	Over(ctx context.Context, node string, f record.Family, s *corev1.Service) error
}

// Faults injects known faults. Without OwnLoadBalancer it can drop replies only.
type Faults interface {
	Inject(ctx context.Context, f FaultSpec) error
}

// FaultSpec is a known fault between client and node.
type FaultSpec struct {
	ID       string
	Kind     string // drop, refuse or reset
	Target   string // address:port
	Protocol string // tcp when empty, or udp
	Node     string // only flows of that node; empty for all
	For      time.Duration
	Lane     string // name of the lane that must detect it
	Control  bool   // it proves the detector
}

// Proxies are the proxies under test, one a node.
type Proxies interface {
	Start(ctx context.Context, node string) error
	Stop(ctx context.Context, node string) error // SIGTERM, then waits for the end
	Kill(ctx context.Context, node string) error // SIGKILL
	Freeze(node string) error                    // SIGSTOP
	Thaw(node string) error                      // SIGCONT
	// Frozen reports whether the node's proxy is stopped, as after Freeze.
	Frozen(node string) (bool, error)
	// Flush empties the node's proxy tables without the proxy's knowledge; restore puts the entries back.
	Flush(ctx context.Context, node string) (restore func() error, err error)
	// Block makes the programs that the node's proxy writes its rules with fail, until Unblock. FailedCalls counts the calls to write that
	// have failed since Block, also after Unblock.
	Block(node string) error
	Unblock(node string) error
	FailedCalls(node string) (int, error)
	// SyncError returns an error that quotes the first failed sync of a proxy's log; nil when there is none.
	SyncError() error
	// Exited returns an error for the first proxy that has ended, with its exit status and last log line; nil when all run.
	Exited() error
	// Change makes the next Start of the node's proxy, which has ended, start another subject.
	Change(node, subject string) error
	// Cleanup makes the node's proxy, which has ended, remove all its state from the kernel.
	Cleanup(ctx context.Context, node string) error
	// StartSecond starts another subject on a node whose proxy runs. alive returns how it has ended, nil while it runs.
	StartSecond(node, subject string) (alive func() error, err error)
	// Subject is the name of the subject that runs on the node.
	Subject(node string) string
	// Quiet is the time since the last line in the log of the node's proxy.
	Quiet(node string) (time.Duration, error)
	// Pid is the process id of the node's proxy.
	Pid(node string) (int, error)
}

// Power cuts and restores the power of nodes.
type Power interface {
	// PowerOff cuts the power of a node without warning, and returns when nothing runs there any more.
	PowerOff(ctx context.Context, node string) error
	// PowerOn boots a node without power, and returns when its proxy runs.
	PowerOn(ctx context.Context, node string) error
}

// Commands changes nodes past their proxies.
type Commands interface {
	// Command runs a program to its end and returns its output.
	Command(ctx context.Context, node string, words ...string) (output string, err error)
	// AddAddress adds an address, such as 192.0.2.1/32, to the loopback device of a node. RemoveAddress removes it.
	AddAddress(node, prefix string) error
	RemoveAddress(node, prefix string) error
	// AnswersARP returns the nodes that answer an ARP request of the load balancer for an IPv4 address, sorted by name.
	AnswersARP(ctx context.Context, address string) (nodes []string, err error)
	// SetSysctl sets a setting of the network of a node, such as net.ipv4.ip_forward.
	SetSysctl(node, name, value string) error
}

// ControlPlane injects faults into the proxies' API server, one node at a time.
type ControlPlane interface {
	// Away keeps the node's proxy from its API server until back is called: connections end, and no request is answered.
	Away(node string) (back func())
	// Cut ends the watches of the node's proxy. With expire the next watch of each resource expires too (410 Gone), so that
	// the proxy lists everything again. It returns the resources whose watches were ended, one for each watch.
	Cut(node string, expire bool) []string
	// Delay makes each event reach the node's proxy later, until lift is called.
	Delay(node string, by time.Duration) (lift func())
	// Lose drops the next event of a resource (as in paths) for the node's proxy, unless it lists again. lost is then called
	// with a description of the event, from any goroutine.
	Lose(node, resource string, lost func(event string))
	// Watching returns the resources that the node's proxy watches, one for each watch.
	Watching(node string) []string
	// Put creates an object or replaces it, with its status, without a request: a recording can have tens of thousands.
	Put(o k8s.Object) error
}

// LoadBalancer is a load balancer whose membership is known.
type LoadBalancer interface {
	// Members are the nodes that get new flows of a Service, sorted; known is false while there is no information.
	Members(service string) (nodes []string, known bool)
}

// PodProber probes pods at their own addresses.
type PodProber interface {
	// ProbePods runs a lane like the given one to each ready pod of its Service, at the port, until stop is called.
	ProbePods(ctx context.Context, like LaneSpec, port int) (stop func() error, err error)
}

// Marks annotates changes of objects that belong to the cluster and not to the run, and undoes them.
type Marks interface {
	// Mark returns the annotations that go with a change.
	Mark(c Change) map[string]string
	// PutBack undoes all changes with annotations of this run.
	PutBack(ctx context.Context) error
}

// Change is what a scenario has done to an object that belongs to the cluster and not to the run.
type Change struct {
	Cordoned bool
	Taint    string                 // key of the taint that was added
	Images   map[string]ImageChange // by container
}

// ImageChange is the image of a container before and after a change.
type ImageChange struct{ Was, Set string }

// Targets finds addresses of Services.
type Targets interface {
	// Target waits until a Service can be reached from where the lanes start, and returns address:port.
	Target(ctx context.Context, s *corev1.Service) (string, error)
}

// JournalWriter stores the run's timeline while it happens.
type JournalWriter interface {
	// Journal appends the head of the timeline, or the line of a step, each with its newline.
	Journal(text string)
}
