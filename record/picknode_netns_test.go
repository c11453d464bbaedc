//go:build netns

package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
)

// The kernel is asked for its own answer: each SYN puts its five-tuple and the index that jhash gave it into a dynamic
// map, and PickNode must agree with every entry. Run with: unshare -rnm go test -tags netns ./reports/
func TestPickNodeIsTheKernelsOwn(t *testing.T) {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatalf("finding the loopback of this namespace: %v", err)
	}
	if lo.Attrs().Flags&net.FlagUp != 0 {
		t.Fatal("the loopback is up already: this does not look like a fresh namespace; run under unshare -rnm")
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		t.Fatalf("bringing the loopback up: %v", err)
	}
	choices := []struct {
		nodes int
		seed  uint32
	}{{1, 1}, {2, 7}, {3, 1}, {3, 0xffffffff}, {5, 42}, {100, 0x80000001}}
	var rules strings.Builder
	rules.WriteString("table ip pick {\n")
	for i := range choices {
		fmt.Fprintf(&rules, "map m%d { type ipv4_addr . ipv4_addr . inet_service . inet_service : mark; size 65535; flags dynamic; }\n", i)
	}
	rules.WriteString("chain out { type filter hook output priority 0;\n")
	for i, c := range choices {
		fmt.Fprintf(&rules, "tcp flags == syn meta mark set jhash ip saddr . ip daddr . tcp sport . tcp dport mod %d seed %d "+
			"add @m%d { ip saddr . ip daddr . tcp sport . tcp dport : meta mark }\n", c.nodes, c.seed, i)
	}
	rules.WriteString("}\n}\n")
	nft(t, rules.String(), "-f", "-")

	const tuples = 300
	random := rand.New(rand.NewPCG(1, 2))
	for range tuples {
		knock(t, loopbackEnd(random), loopbackEnd(random))
	}
	for i, c := range choices {
		seen := map[int]int{}
		entries := mapEntries(t, fmt.Sprintf("m%d", i))
		for _, e := range entries {
			if got := PickNode(e.source, e.target, c.seed, c.nodes); got != e.mark {
				t.Fatalf("%v to %v, seed %d: the kernel chose %d of %d, PickNode says %d", e.source, e.target, c.seed, e.mark, c.nodes, got)
			}
			seen[e.mark]++
		}
		if len(entries) < tuples*9/10 {
			t.Errorf("only %d of %d tuples were seen by the kernel's rule", len(entries), tuples)
		}
		if c.nodes <= 5 && len(seen) != c.nodes {
			t.Errorf("%d nodes, but only %v were ever chosen", c.nodes, seen)
		}
	}
}

func loopbackEnd(random *rand.Rand) *net.TCPAddr {
	ip := net.IPv4(127, byte(random.IntN(256)), byte(random.IntN(256)), byte(1+random.IntN(254)))
	return &net.TCPAddr{IP: ip, Port: 1024 + random.IntN(60000)}
}

// knock sends one SYN; nobody listens, so that the loopback refuses it at once.
func knock(t *testing.T, source, target *net.TCPAddr) {
	t.Helper()
	conn, err := net.DialTCP("tcp4", source, target)
	if err == nil {
		conn.Close()
		return
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatalf("sending a SYN from %v to %v: %v", source, target, err)
	}
}

func nft(t *testing.T, input string, args ...string) []byte {
	t.Helper()
	cmd := exec.Command("nft", args...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("nft %v: %v: %s", args, err, out)
	}
	return out
}

type mapEntry struct {
	source, target netip.AddrPort
	mark           int
}

func mapEntries(t *testing.T, name string) []mapEntry {
	t.Helper()
	var listing struct {
		Nftables []struct {
			Map *struct {
				Elem [][2]json.RawMessage `json:"elem"`
			} `json:"map"`
		} `json:"nftables"`
	}
	if err := json.Unmarshal(nft(t, "", "-j", "list", "map", "ip", "pick", name), &listing); err != nil {
		t.Fatalf("reading nft's listing of %s: %v", name, err)
	}
	var entries []mapEntry
	for _, object := range listing.Nftables {
		if object.Map == nil {
			continue
		}
		for _, pair := range object.Map.Elem {
			entries = append(entries, parseEntry(t, pair))
		}
	}
	return entries
}

func parseEntry(t *testing.T, pair [2]json.RawMessage) mapEntry {
	t.Helper()
	var key struct {
		Concat [4]any `json:"concat"`
	}
	var entry mapEntry
	if err := errors.Join(json.Unmarshal(pair[0], &key), json.Unmarshal(pair[1], &entry.mark)); err != nil {
		t.Fatalf("reading the map entry %s: %v", pair, err)
	}
	end := func(host, port any) netip.AddrPort {
		address, err := netip.ParseAddr(fmt.Sprint(host))
		number, isNumber := port.(float64)
		if err != nil || !isNumber {
			t.Fatalf("unexpected map entry %s: %v", pair, err)
		}
		return netip.AddrPortFrom(address, uint16(number))
	}
	entry.source, entry.target = end(key.Concat[0], key.Concat[2]), end(key.Concat[1], key.Concat[3])
	return entry
}
