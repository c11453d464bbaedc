package linux

import (
	"encoding/binary"
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
