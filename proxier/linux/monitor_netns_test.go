//go:build netns

package linux

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	mdnetlink "github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/proxier/kernel"
)

// Every deletion in the proxier's tables is detected, and the missing parts are recreated and reported.
func TestDeletionsAreDetected(t *testing.T) {
	for _, command := range []string{"flush ruleset", "delete table ip " + Table, "flush chain ip " + Table + " postrouting", "flush table ip6 " + Table} {
		t.Run(command, func(t *testing.T) {
			inNamespace(t)
			var recreated []string
			f := newTestFilter(t, Options{Recreated: func(what string) { recreated = append(recreated, what) }})
			d, err := startMonitor(func(err error) { t.Error(err) })
			if err != nil {
				t.Fatal(err)
			}
			defer d.close()
			nft(t, command)
			select {
			case <-d.damaged:
			case <-time.After(30 * time.Second):
				t.Fatal("the deletion was not detected")
			}
			if elements(t, f); len(recreated) == 0 || !strings.Contains(recreated[0], Table) {
				t.Errorf("recreated %q", recreated)
			}
			if recreated = nil; len(elements(t, f)) != 0 || len(recreated) != 0 {
				t.Errorf("after the repair recreated %q", recreated)
			}
		})
	}
}

// Changes of other programs' tables and of the proxier's elements are not damage.
func TestOtherChangesAreNotDamage(t *testing.T) {
	inNamespace(t)
	f := newTestFilter(t, Options{})
	conn, err := mdnetlink.Dial(unix.NETLINK_NETFILTER, &mdnetlink.Config{Groups: 1 << (unix.NFNLGRP_NFTABLES - 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	own := []kernel.Element{portElement(kernel.Masquerade, "203.0.113.10", 80), hairpinElement("10.244.1.5")}
	if err := f.change(own, nil); err != nil {
		t.Fatal(err)
	}
	if err := f.change(nil, own); err != nil {
		t.Fatal(err)
	}
	nft(t, "add table ip other; add chain ip other c; add rule ip other c accept; delete table ip other; add table ip last")
	last := func(m mdnetlink.Message) bool { return bytes.Contains(m.Data, []byte("last\x00")) }
	for heard := 0; ; {
		messages, err := conn.Receive()
		if err != nil {
			t.Fatal(err)
		}
		if heard += len(messages); slices.ContainsFunc(messages, isDeletion) {
			t.Error(fmt.Sprint("detected as damage: ", messages))
		}
		if slices.ContainsFunc(messages, last) {
			if heard < 8 {
				t.Errorf("only %d messages were received", heard)
			}
			return
		}
	}
}
