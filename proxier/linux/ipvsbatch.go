package linux

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/moby/ipvs"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/proxier/kernel"
)

// IPVS's interface by generic netlink (linux/ip_vs.h), as far as batches need it: IPVS_CMD…, IPVS_CMD_ATTR…, IPVS_SVC_ATTR…
// and IPVS_DEST_ATTR….
const (
	newService, newDest         = 1, 5
	attrService, attrDest       = 1, 2
	svcFamily, svcProtocol      = 1, 2
	svcAddr, svcPort            = 3, 4
	svcScheduler, svcFlags      = 6, 7
	svcTimeout, svcNetmask      = 8, 9
	destAddr, destPort          = 1, 2
	destMethod, destWeight      = 3, 4
	destMost, destLeast         = 5, 6
	genlVersion            byte = 1
)

// ipvsTable is the handle of moby/ipvs, which waits for the answer to each request, and a socket beside it for many at a time.
type ipvsTable struct {
	*ipvs.Handle
	batches *batches
	family  uint16 // of generic netlink; 0 as long as nobody asked
}

func openIPVS() (table, error) {
	h, err := ipvs.New("")
	if err != nil {
		return nil, err
	}
	b, err := openBatches(unix.NETLINK_GENERIC)
	if err != nil {
		h.Close()
		return nil, err
	}
	return &ipvsTable{Handle: h, batches: b}, nil
}

// Close ends what is under way, too.
func (t *ipvsTable) Close() {
	t.batches.close()
	t.Handle.Close()
}

// ApplyAll adds virtual servers, or real ones. The errors are those of the operations.
func (t *ipvsTable) ApplyAll(ops []kernel.Op) ([]error, error) {
	if t.family == 0 {
		f, err := netlink.GenlFamilyGet("IPVS")
		if err != nil {
			return nil, fmt.Errorf("asking for the netlink family of IPVS: %w", err)
		}
		t.family = f.ID
	}
	return t.batches.do(len(ops), func(i int) { t.write(ops[i]) })
}

func (t *ipvsTable) write(op kernel.Op) {
	b := t.batches
	switch o := op.(type) {
	case kernel.AddVirtual:
		s := service(o.Virtual)
		at := b.begin(t.family, 0, newService, genlVersion, 0, 0)
		in := t.key(s)
		b.attribute(svcScheduler, append([]byte(s.SchedName), 0)...)
		var flags [8]byte // and which of them count: all
		binary.NativeEndian.PutUint32(flags[:], s.Flags)
		binary.NativeEndian.PutUint32(flags[4:], ^uint32(0))
		b.attribute(svcFlags, flags[:]...)
		b.attribute32(svcTimeout, s.Timeout)
		b.attribute32(svcNetmask, s.Netmask)
		b.unnest(in)
		b.end(at)
	case kernel.AddReal:
		d := destination(o.Real, o.Weight)
		at := b.begin(t.family, 0, newDest, genlVersion, 0, 0)
		b.unnest(t.key(service(kernel.Virtual{Key: o.Key})))
		in := b.nest(attrDest)
		b.attribute(destAddr, d.Address...)
		b.attribute(destPort, byte(d.Port>>8), byte(d.Port))
		b.attribute32(destMethod, d.ConnectionFlags)
		b.attribute32(destWeight, uint32(d.Weight))
		b.attribute32(destMost, 0)
		b.attribute32(destLeast, 0)
		b.unnest(in)
		b.end(at)
	}
}

// key begins the attribute that says which virtual server is meant.
func (t *ipvsTable) key(s *ipvs.Service) (nest int) {
	b := t.batches
	nest = b.nest(attrService)
	b.attribute(svcFamily, binary.NativeEndian.AppendUint16(nil, s.AddressFamily)...)
	b.attribute(svcProtocol, binary.NativeEndian.AppendUint16(nil, s.Protocol)...)
	b.attribute(svcAddr, s.Address...)
	b.attribute(svcPort, byte(s.Port>>8), byte(s.Port))
	return nest
}

// applyAll is apply for many operations that are alike.
func (v *virtualServers) applyAll(ops []kernel.Op) []error {
	errs, err := call(v.handle, "changing virtual servers", func(t table) ([]error, error) { return t.ApplyAll(ops) })
	if err != nil {
		return repeated(err, len(ops))
	}
	for i := range errs {
		if _, adding := ops[i].(kernel.AddVirtual); adding && errors.Is(errs[i], unix.EEXIST) {
			errs[i] = fmt.Errorf("%w: %w", kernel.ErrExists, errs[i])
		}
	}
	return errs
}

// repeated is an error that is about each of n operations.
func repeated(err error, n int) []error {
	errs := make([]error, n)
	for i := range errs {
		errs[i] = err
	}
	return errs
}
