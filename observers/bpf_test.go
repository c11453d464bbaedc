//go:build linux

package observers

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
)

// fakeMap is a BPF map of services or of backends.
type fakeMap struct {
	services map[lb4Key]lb4Service
	backends map[uint32]lb4Backend
	err      error
}

func (f fakeMap) Lookup(key, value any) error {
	if f.err != nil {
		return f.err
	}
	switch v := value.(type) {
	case *lb4Service:
		found, has := f.services[key.(lb4Key)]
		if !has {
			return ebpf.ErrKeyNotExist
		}
		*v = found
	case *lb4Backend:
		found, has := f.backends[key.(uint32)]
		if !has {
			return ebpf.ErrKeyNotExist
		}
		*v = found
	}
	return nil
}

// A Service has its backends: those of the first slots get new connections, the others are terminating.
func TestReadBPF(t *testing.T) {
	web := ServiceAddress{Address: netip.MustParseAddrPort("203.0.113.10:80")}
	key := func(slot uint16) lb4Key {
		return lb4Key{Address: [4]byte{203, 0, 113, 10}, Port: [2]byte{0, 80}, Slot: slot, Proto: 6}
	}
	services := fakeMap{services: map[lb4Key]lb4Service{key(0): {Count: 1}, key(1): {Backend: 7}, key(2): {Backend: 8}}}
	backends := fakeMap{backends: map[uint32]lb4Backend{7: {Address: [4]byte{10, 244, 1, 2}, Port: [2]byte{0x1f, 0x90}}, 8: {Address: [4]byte{10, 244, 2, 2}, Port: [2]byte{0x1f, 0x90}, Flags: 1}}}
	other := ServiceAddress{Address: netip.MustParseAddrPort("203.0.113.11:80")}
	six := ServiceAddress{Address: netip.MustParseAddrPort("[fd00::1]:80")}
	got, err := readBPF(services, backends, []ServiceAddress{web, other, six})
	if err != nil {
		t.Fatal(err)
	}
	want := map[netip.AddrPort]int{netip.MustParseAddrPort("10.244.1.2:8080"): 1, netip.MustParseAddrPort("10.244.2.2:8080"): 0}
	if diff := cmp.Diff(want, got[web]); diff != "" || len(got) != 1 {
		t.Errorf("%d Services; %s", len(got), diff)
	}
	services.services[key(0)] = lb4Service{Count: 0}
	if got, err = readBPF(services, backends, []ServiceAddress{web}); err != nil || len(got[web]) != 2 || got[web][netip.MustParseAddrPort("10.244.1.2:8080")] != 0 {
		t.Errorf("without a backend that gets new connections: %v, %v", got, err)
	}
	anyProtocol := fakeMap{services: map[lb4Key]lb4Service{}}
	for k, v := range services.services {
		k.Proto = 0
		anyProtocol.services[k] = v
	}
	if got, err = readBPF(anyProtocol, backends, []ServiceAddress{web}); err != nil || len(got[web]) != 2 {
		t.Errorf("maps without protocols: %v, %v", got, err)
	}
	if _, err := readBPF(fakeMap{err: errors.New("no permission")}, backends, []ServiceAddress{web}); err == nil {
		t.Error("a map that cannot be read gave no error")
	}
}
