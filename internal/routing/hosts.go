package routing

// host is a client, a pod, or the node itself.
type host struct {
	name      string
	addrs     []string // IPv4 before IPv6
	nodeAddrs []string // addresses of the node's end of the link; the first of each family is the gateway
	nodeName  string   // node of a pod; empty for a client
	ns        namespace
	asker     string // Unix socket of the program that makes its requests; empty for this one
}

// The node's primary addresses are on its link to client. Pod c is a client only; pod r is on another node.
const (
	nodeName               = "node-1"
	zone                   = "zone-1"
	nodeAddr, nodeAddr6    = "192.0.2.1", "2001:db8::1"
	nodeSecond, nodeOther6 = "198.51.100.1", "2001:db8:2::1"
)

// podPort is the port of pods, in all protocols.
const podPort = 8080

func hosts() []*host {
	return []*host{
		{name: "client", addrs: []string{"192.0.2.2", "2001:db8::2"}, nodeAddrs: []string{nodeAddr, nodeAddr6, nodeSecond, nodeOther6}},
		{name: "stranger", addrs: []string{"192.0.3.2", "2001:db8:3::2"}, nodeAddrs: []string{"192.0.3.1", "2001:db8:3::1"}},
		{name: "a", addrs: []string{"10.244.1.1", "fd00:244:0:1::1"}, nodeAddrs: []string{"10.244.1.254", "fd00:244:0:1::fe"}, nodeName: nodeName},
		{name: "b", addrs: []string{"10.244.2.1", "fd00:244:0:2::1"}, nodeAddrs: []string{"10.244.2.254", "fd00:244:0:2::fe"}, nodeName: nodeName},
		{name: "c", addrs: []string{"10.244.3.1", "fd00:244:0:3::1"}, nodeAddrs: []string{"10.244.3.254", "fd00:244:0:3::fe"}, nodeName: nodeName},
		{name: "r", addrs: []string{"10.244.9.1", "fd00:244:0:9::1"}, nodeAddrs: []string{"10.244.9.254", "fd00:244:0:9::fe"}, nodeName: "node-2"},
	}
}
