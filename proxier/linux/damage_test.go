package linux

import (
	"encoding/binary"
	"os"
	"slices"
	"testing"

	mdnetlink "github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// told is a message of nftables about a table: struct nfgenmsg, an attribute before the table's name, and the name.
func told(kind uint16, table string) mdnetlink.Message {
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

func TestWhatIsDamage(t *testing.T) {
	for _, kind := range []uint16{unix.NFT_MSG_DELTABLE, unix.NFT_MSG_DELCHAIN, unix.NFT_MSG_DELRULE, unix.NFT_MSG_DELSET} {
		if !takesOurs(told(kind, Table)) {
			t.Errorf("message %d about %s is no damage", kind, Table)
		}
		for _, other := range []string{"nat", Table + "2", Table[1:], ""} {
			if takesOurs(told(kind, other)) {
				t.Errorf("message %d about the table %q is damage", kind, other)
			}
		}
	}
	for _, kind := range []uint16{unix.NFT_MSG_NEWTABLE, unix.NFT_MSG_NEWRULE, unix.NFT_MSG_NEWSETELEM, unix.NFT_MSG_DELSETELEM, unix.NFT_MSG_NEWGEN} {
		if takesOurs(told(kind, Table)) {
			t.Errorf("message %d is damage", kind)
		}
	}
	whole := told(unix.NFT_MSG_DELTABLE, Table)
	for n := range whole.Data[:len(whole.Data)-4] {
		if takesOurs(mdnetlink.Message{Header: whole.Header, Data: whole.Data[:n]}) {
			t.Errorf("the first %d bytes of a message are damage", n)
		}
	}
	whole.Header.Type = unix.NFNL_SUBSYS_CTNETLINK<<8 | unix.NFT_MSG_DELTABLE
	if takesOurs(whole) {
		t.Error("a message of conntrack is damage")
	}
}

// heard is what a socket says, one after the other; nil stands for its end by close.
type heard struct {
	d    *damage
	says []any
}

func (h *heard) Close() error { return nil }

func (h *heard) Receive() ([]mdnetlink.Message, error) {
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

// An error is told of, counts as damage that may have been missed, and is no reason to be deaf from then on, unless there is no end
// to them.
func TestListeningGoesOn(t *testing.T) {
	quiet, loud := told(unix.NFT_MSG_NEWTABLE, Table), told(unix.NFT_MSG_DELTABLE, Table)
	for what, test := range map[string]struct {
		says     []any
		damaged  bool
		failures int
	}{
		"closed":                           {},
		"nothing of ours, and closed":      {says: []any{quiet}},
		"no room":                          {says: []any{unix.ENOBUFS}, damaged: true},
		"an error":                         {says: []any{unix.EIO}, damaged: true, failures: 1},
		"nothing but errors, without end":  {says: slices.Repeat([]any{unix.EIO}, 100), damaged: true, failures: mostFailures + 1},
		"errors with something in between": {says: slices.Repeat([]any{unix.EIO, quiet}, 100), damaged: true, failures: 100},
	} {
		var failures []error
		h := &heard{says: test.says}
		h.d = newDamage(h, func(err error) { failures = append(failures, err) })
		h.d.listen()
		if damaged := len(h.d.received) == 1; damaged != test.damaged || len(failures) != test.failures {
			t.Errorf("%s: damage: %v, want %v; told of %d errors, want %d: %v", what, damaged, test.damaged, len(failures), test.failures, failures)
		}
	}
	h := &heard{says: []any{unix.EIO, loud}}
	h.d = newDamage(h, func(error) { <-h.d.received }) // what the error may have hidden is dealt with
	h.d.listen()
	if len(h.d.received) != 1 {
		t.Error("what was damaged after an error is not noticed")
	}
}
