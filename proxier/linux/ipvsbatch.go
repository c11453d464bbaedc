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

// Constants of linux/ip_vs.h for generic netlink: IPVS_CMD_…, IPVS_CMD_ATTR_…, IPVS_SVC_ATTR_… and IPVS_DEST_ATTR_….
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

// batchHandle extends moby/ipvs, which waits for the reply to each request, by a socket for batches of requests.
type batchHandle struct {
	*ipvs.Handle
	batches *batchSocket
	family  uint16 // generic netlink family ID; 0 until resolved
}

func openIPVS() (ipvsHandle, error) {
	h, err := ipvs.New("")
	if err != nil {
		return nil, err
	}
	b, err := openBatches(unix.NETLINK_GENERIC)
	if err != nil {
		h.Close()
		return nil, err
	}
	return &batchHandle{Handle: h, batches: b}, nil
}

// Close also ends calls in progress.
func (t *batchHandle) Close() {
	t.batches.close()
	t.Handle.Close()
}

// ApplyAll adds virtual servers or real servers, and returns one error or nil per operation.
func (t *batchHandle) ApplyAll(ops []kernel.Op) ([]error, error) {
	if t.family == 0 {
		f, err := netlink.GenlFamilyGet("IPVS")
		if err != nil {
			return nil, fmt.Errorf("asking for the netlink family of IPVS: %w", err)
		}
		t.family = f.ID
	}
	return t.batches.exchange(len(ops), func(i int) { t.appendRequest(ops[i]) })
}

func (t *batchHandle) appendRequest(op kernel.Op) {
	b := t.batches
	switch o := op.(type) {
	case kernel.AddVirtual:
		s := toService(o.Virtual)
		at := b.begin(t.family, 0, newService, genlVersion, 0, 0)
		in := t.beginService(s)
		b.attribute(svcScheduler, append([]byte(s.SchedName), 0)...)
		var flags [8]byte // flags and their mask
		binary.NativeEndian.PutUint32(flags[:], s.Flags)
		binary.NativeEndian.PutUint32(flags[4:], ^uint32(0))
		b.attribute(svcFlags, flags[:]...)
		b.attribute32(svcTimeout, s.Timeout)
		b.attribute32(svcNetmask, s.Netmask)
		b.unnest(in)
		b.end(at)
	case kernel.AddReal:
		d := toDestination(o.Real, o.Weight)
		at := b.begin(t.family, 0, newDest, genlVersion, 0, 0)
		b.unnest(t.beginService(toService(kernel.Virtual{Key: o.Key})))
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

// beginService appends the attribute that identifies a virtual server, and leaves it open.
func (t *batchHandle) beginService(s *ipvs.Service) (nest int) {
	b := t.batches
	nest = b.nest(attrService)
	b.attribute(svcFamily, binary.NativeEndian.AppendUint16(nil, s.AddressFamily)...)
	b.attribute(svcProtocol, binary.NativeEndian.AppendUint16(nil, s.Protocol)...)
	b.attribute(svcAddr, s.Address...)
	b.attribute(svcPort, byte(s.Port>>8), byte(s.Port))
	return nest
}

// applyAll applies a batch.
func (v *virtualServers) applyAll(ops []kernel.Op) []error {
	errs, err := call(v.handle, "changing virtual servers", func(t ipvsHandle) ([]error, error) { return t.ApplyAll(ops) })
	if err != nil {
		return repeatError(err, len(ops))
	}
	for i := range errs {
		if _, adding := ops[i].(kernel.AddVirtual); adding && errors.Is(errs[i], unix.EEXIST) {
			errs[i] = fmt.Errorf("%w: %w", kernel.ErrExists, errs[i])
		}
	}
	return errs
}

// repeatError returns err n times.
func repeatError(err error, n int) []error {
	errs := make([]error, n)
	for i := range errs {
		errs[i] = err
	}
	return errs
}
