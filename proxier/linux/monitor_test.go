package linux

import (
	"encoding/binary"
	"os"
	"slices"
	"testing"

	mdnetlink "github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// nftMessage returns a message about a table: struct nfgenmsg, an attribute before the table's name, and the name.
func nftMessage(kind uint16, table string) mdnetlink.Message {
	data := []byte{unix.AF_INET, 0, 0, 0}
	for _, a := range []struct {
		kind  uint16
		value string
	}{{4, "xyz"}, {tableAttribute, table + "\x00"}} {
		data = binary.NativeEndian.AppendUint16(data, uint16(unix.NLA_HDRLEN+len(a.value)))
		data = binary.NativeEndian.AppendUint16(data, a.kind)
		data = append(data, a.value...)
		for len(data)%unix.NLA_ALIGNTO != 0 {
			data = append(data, 0)
		}
	}
	return mdnetlink.Message{Header: mdnetlink.Header{Type: mdnetlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | kind)}, Data: data}
}

func TestIsDeletion(t *testing.T) {
	for _, kind := range []uint16{unix.NFT_MSG_DELTABLE, unix.NFT_MSG_DELCHAIN, unix.NFT_MSG_DELRULE, unix.NFT_MSG_DELSET} {
		if !isDeletion(nftMessage(kind, Table)) {
			t.Errorf("message %d about %s is not detected", kind, Table)
		}
		for _, other := range []string{"nat", Table + "2", Table[1:], ""} {
			if isDeletion(nftMessage(kind, other)) {
				t.Errorf("message %d about the table %q is detected", kind, other)
			}
		}
	}
	for _, kind := range []uint16{unix.NFT_MSG_NEWTABLE, unix.NFT_MSG_NEWRULE, unix.NFT_MSG_NEWSETELEM, unix.NFT_MSG_DELSETELEM, unix.NFT_MSG_NEWGEN} {
		if isDeletion(nftMessage(kind, Table)) {
			t.Errorf("message %d is detected", kind)
		}
	}
	whole := nftMessage(unix.NFT_MSG_DELTABLE, Table)
	for n := range whole.Data[:len(whole.Data)-4] {
		if isDeletion(mdnetlink.Message{Header: whole.Header, Data: whole.Data[:n]}) {
			t.Errorf("the first %d bytes of a message are detected", n)
		}
	}
	whole.Header.Type = unix.NFNL_SUBSYS_CTNETLINK<<8 | unix.NFT_MSG_DELTABLE
	if isDeletion(whole) {
		t.Error("a conntrack message is detected")
	}
}

// fakeSocket returns scripted results; nil stands for close.
type fakeSocket struct {
	d    *ruleMonitor
	says []any
}

func (h *fakeSocket) Close() error { return nil }

func (h *fakeSocket) Receive() ([]mdnetlink.Message, error) {
	if len(h.says) == 0 {
		h.d.close()
		return nil, os.ErrClosed
	}
	next := h.says[0]
	h.says = h.says[1:]
	if err, is := next.(error); is {
		return nil, err
	}
	return []mdnetlink.Message{next.(mdnetlink.Message)}, nil
}

// An error is reported and counts as damage. The monitor continues unless errors do not end.
func TestMonitorContinuesAfterErrors(t *testing.T) {
	quiet, loud := nftMessage(unix.NFT_MSG_NEWTABLE, Table), nftMessage(unix.NFT_MSG_DELTABLE, Table)
	for what, test := range map[string]struct {
		says     []any
		damaged  bool
		failures int
	}{
		"closed":                           {},
		"other tables, then closed":        {says: []any{quiet}},
		"no room":                          {says: []any{unix.ENOBUFS}, damaged: true},
		"an error":                         {says: []any{unix.EIO}, damaged: true, failures: 1},
		"nothing but errors, without end":  {says: slices.Repeat([]any{unix.EIO}, 100), damaged: true, failures: maxFailures + 1},
		"errors with something in between": {says: slices.Repeat([]any{unix.EIO, quiet}, 100), damaged: true, failures: 100},
	} {
		var failures []error
		h := &fakeSocket{says: test.says}
		h.d = newMonitor(h, func(err error) { failures = append(failures, err) })
		h.d.run()
		if damaged := len(h.d.damaged) == 1; damaged != test.damaged || len(failures) != test.failures {
			t.Errorf("%s: damage %v, want %v; %d errors, want %d: %v", what, damaged, test.damaged, len(failures), test.failures, failures)
		}
	}
	h := &fakeSocket{says: []any{unix.EIO, loud}}
	h.d = newMonitor(h, func(error) { <-h.d.damaged }) // damage that the error implies
	h.d.run()
	if len(h.d.damaged) != 1 {
		t.Error("a deletion after an error is not detected")
	}
}
