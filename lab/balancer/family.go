package balancer

import (
	"cmp"
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/hitless/hitless/lab/topology"
	"github.com/hitless/hitless/record"
	corev1 "k8s.io/api/core/v1"
)

// frontend identifies an external address: a Service has one of each family that it shares with the lab.
type frontend struct {
	service string // namespace/name
	family  record.Family
}

func compareFrontends(a, b frontend) int {
	return cmp.Or(cmp.Compare(a.service, b.service), cmp.Compare(a.family, b.family))
}

// familiesOf are the single families of a lab.
func familiesOf(lab *topology.Network) (all []record.Family) {
	for _, p := range lab.Plans() {
		all = append(all, p.Family)
	}
	return all
}

// hasFamily reports whether a Service has a family; one without families is of IPv4.
func hasFamily(svc *corev1.Service, f record.Family) bool {
	if len(svc.Spec.IPFamilies) == 0 {
		return f == record.IPv4
	}
	return slices.Contains(svc.Spec.IPFamilies, corev1.IPFamily(f.API()))
}

// byFamily forwards each table by the forwarder of its family.
type byFamily map[record.Family]forwarder

// newByFamily makes a forwarder for each family of the lab.
func newByFamily(cfg Config, create func(Config, record.Family) (forwarder, error)) (byFamily, error) {
	all := byFamily{}
	for _, f := range familiesOf(cfg.Net) {
		one, err := create(cfg, f)
		if err != nil {
			return nil, errors.Join(err, all.close())
		}
		all[f] = one
	}
	return all, nil
}

func (all byFamily) set(t table) error    { return all[t.frontend().family].set(t) }
func (all byFamily) remove(t table) error { return all[t.frontend().family].remove(t) }
func (all byFamily) checksHealth() bool   { return false }

func (all byFamily) close() (err error) {
	for _, f := range record.DualStack.Each() {
		if one := all[f]; one != nil {
			err = errors.Join(err, one.close())
		}
	}
	return err
}

// header is what rules must know of a family's IP header.
type header struct {
	table          nftables.TableFamily
	address        nftables.SetDatatype
	source, target uint32 // offsets of the addresses
	size           uint32 // bytes of an address
	unreachable    uint8  // ICMP code of an unreachable port
}

var headers = map[record.Family]header{
	record.IPv4: {nftables.TableFamilyIPv4, nftables.TypeIPAddr, 12, 16, 4, 3},
	record.IPv6: {nftables.TableFamilyIPv6, nftables.TypeIP6Addr, 8, 24, 16, 4},
}

// words is the number of 4-byte registers of an address.
func (h header) words() uint32 { return h.size / 4 }

// within matches an address in the header against a prefix.
func (h header) within(offset uint32, p netip.Prefix) []expr.Any {
	mask := make([]byte, h.size)
	for i := range p.Bits() {
		mask[i/8] |= 0x80 >> (i % 8)
	}
	return []expr.Any{network(regA, offset, h.size), masked(mask...), equals(p.Masked().Addr().AsSlice()...)}
}

// key is the key of an address, protocol and port in the map of services; registers pad each to 4 bytes.
func key(addr netip.Addr, protocol byte, port uint16) []byte {
	k := append(addr.AsSlice(), protocol, 0, 0, 0)
	return append(binary.BigEndian.AppendUint16(k, port), 0, 0)
}
