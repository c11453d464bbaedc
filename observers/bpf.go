//go:build linux

package observers

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/record"
)

// The maps of Cilium's load balancer for IPv4, in the node's BPF file system. Their keys and values are the same from 1.15 to 1.20
// (bpf/lib/common.h): addresses and ports in network byte order, other numbers in that of the machine.
const (
	bpfGlobals     = "/sys/fs/bpf/tc/globals/"
	CiliumServices = bpfGlobals + "cilium_lb4_services_v2"
	ciliumBackends = bpfGlobals + "cilium_lb4_backends_v3"
)

// lb4Key is struct lb4_key. Slot 0 is the Service, and the others are its backends. Scope 0 is that of connections from outside.
type lb4Key struct {
	Address [4]byte
	Port    [2]byte
	Slot    uint16
	Proto   uint8
	Scope   uint8
	_       [2]byte
}

// lb4Service is struct lb4_service. Count is how many of the slots get new connections.
type lb4Service struct {
	Backend uint32
	Count   uint16
	_       [6]byte
}

// lb4Backend is struct lb4_backend. Flags is its state: 0 is active, 1 terminating, 2 quarantined, 3 in maintenance.
type lb4Backend struct {
	Address [4]byte
	Port    [2]byte
	_       uint8
	Flags   uint8
	_       [4]byte
}

// bpfMap is a map of the kernel: lookup returns ebpf.ErrKeyNotExist for a missing key.
type bpfMap interface {
	Lookup(key, value any) error
}

// openBPF reads the load balancer's maps of a node. The maps are opened for each reading: an agent may replace them.
func openBPF(node Node) func([]ServiceAddress) (backendTable, error) {
	return func(addresses []ServiceAddress) (t backendTable, err error) {
		err = node.Inside(func() error {
			t, err = readPinned(addresses)
			return err
		})
		return t, err
	}
}

// readPinned reads the maps in the BPF file system of the calling thread. Without maps no Service is present.
func readPinned(addresses []ServiceAddress) (backendTable, error) {
	var maps [2]*ebpf.Map
	for i, name := range []string{CiliumServices, ciliumBackends} {
		m, err := ebpf.LoadPinnedMap(name, &ebpf.LoadPinOptions{ReadOnly: true})
		if errors.Is(err, fs.ErrNotExist) {
			return backendTable{}, nil
		}
		if err != nil {
			return nil, fmt.Errorf("opening the BPF map %s: %w", name, err)
		}
		defer m.Close()
		maps[i] = m
	}
	return readBPF(maps[0], maps[1], addresses)
}

// readBPF reads the Services of the addresses. A backend that gets new connections has weight 1, another one 0.
func readBPF(services, backends bpfMap, addresses []ServiceAddress) (backendTable, error) {
	t := backendTable{}
	for _, s := range addresses {
		if !s.Address.Addr().Is4() {
			continue
		}
		weights, err := readLB4(services, backends, s)
		switch {
		case errors.Is(err, ebpf.ErrKeyNotExist):
		case err != nil:
			return nil, fmt.Errorf("reading %s in the BPF maps: %w", s.Address, err)
		default:
			t[s] = weights
		}
	}
	return t, nil
}

func readLB4(services, backends bpfMap, s ServiceAddress) (map[netip.AddrPort]int, error) {
	key := lb4Key{Address: s.Address.Addr().As4(), Proto: unix.IPPROTO_TCP}
	binary.BigEndian.PutUint16(key.Port[:], s.Address.Port())
	if s.UDP {
		key.Proto = unix.IPPROTO_UDP
	}
	var service lb4Service
	if err := services.Lookup(key, &service); err != nil {
		if !errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil, err
		}
		key.Proto = 0 // Services have no protocol in the maps of 1.15
		if err := services.Lookup(key, &service); err != nil {
			return nil, err
		}
	}
	count := int(service.Count)
	weights := map[netip.AddrPort]int{}
	for slot := 1; slot < 1<<16; slot++ {
		key.Slot = uint16(slot)
		err := services.Lookup(key, &service)
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			break // the slots after count have the backends that get no new connections
		}
		if err != nil {
			return nil, err
		}
		var b lb4Backend
		if err := backends.Lookup(service.Backend, &b); errors.Is(err, ebpf.ErrKeyNotExist) {
			continue // it is being replaced
		} else if err != nil {
			return nil, err
		}
		weight := 0
		if slot <= count {
			weight = 1
		}
		weights[netip.AddrPortFrom(netip.AddrFrom4(b.Address), binary.BigEndian.Uint16(b.Port[:]))] = weight
	}
	return weights, nil
}

func newBPFPoller(node Node, watched func() []ServiceAddress, recorder record.Recorder, now func() time.Duration) *poller {
	return newPoller(node.Name, record.TableBPF, watched, openBPF(node), recorder, now)
}
