package recording

import (
	"bytes"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/hitless/hitless/lab/topology"
	"github.com/hitless/hitless/scenarios/timeline"
)

// labs are the addresses that the lab has.
var labs = []netip.Prefix{topology.ServiceCIDR, topology.ClusterCIDR, topology.ExternalCIDR, topology.ClientSources,
	netip.PrefixFrom(topology.ControlAddr, 24).Masked(), netip.PrefixFrom(topology.ClientAddr, 24).Masked()}

func TestMovedAddressesAreNotOfTheLab(t *testing.T) {
	for _, ranges := range []map[addressRange]netip.Prefix{ranges4, ranges6} {
		for _, moved := range ranges {
			for _, lab := range labs {
				if moved.Overlaps(lab) {
					t.Errorf("%s overlaps %s, which is the lab's", moved, lab)
				}
			}
			for _, other := range ranges {
				if other != moved && other.Overlaps(moved) {
					t.Errorf("%s overlaps %s", moved, other)
				}
			}
		}
	}
}

// The same becomes the same, another becomes another, and what was there at the beginning keeps its order.
func TestAnonymousNames(t *testing.T) {
	addresses := rapid.Custom(func(t *rapid.T) netip.Addr {
		length := rapid.SampledFrom([]int{4, 16}).Draw(t, "length")
		a, _ := netip.AddrFromSlice(rapid.SliceOfN(rapid.Byte(), length, length).Draw(t, "address"))
		return a
	})
	rapid.Check(t, func(t *rapid.T) {
		n := newRenamer()
		words, addrs := rapid.SliceOf(rapid.StringMatching(`[a-z]{1,3}`)).Draw(t, "words"), rapid.SliceOf(addresses).Draw(t, "addresses")
		ports := rapid.SliceOf(rapid.Int32Range(1, 65535)).Draw(t, "ports")
		known := rapid.IntRange(0, len(words)).Draw(t, "known")
		for _, w := range words[:known] {
			n.name("svc", w)
		}
		for _, a := range addrs {
			n.address(workloadRange, a)
		}
		for _, p := range ports {
			n.nodePort(p)
		}
		n.assign()
		to, back := map[string]string{}, map[string]string{}
		for _, w := range words {
			to[w], back[n.name("svc", w)] = n.name("svc", w), w
		}
		if len(to) != len(back) {
			t.Fatalf("two names became one: %v", to)
		}
		slices.Sort(words[:known])
		if moved := mapped(words[:known], func(w string) string { return n.name("svc", w) }); !slices.IsSorted(moved) {
			t.Fatalf("%v became %v", words[:known], moved)
		}
		slices.SortFunc(addrs, netip.Addr.Compare)
		if moved := mapped(addrs, func(a netip.Addr) netip.Addr { return n.address(workloadRange, a) }); !slices.IsSortedFunc(moved, netip.Addr.Compare) {
			t.Fatalf("%v became %v", addrs, moved)
		}
		slices.Sort(ports)
		if moved := mapped(ports, n.nodePort); !slices.IsSorted(moved) {
			t.Fatalf("%v became %v", ports, moved)
		}
	})
}

func mapped[A, B any](all []A, f func(A) B) (out []B) {
	for _, a := range all {
		out = append(out, f(a))
	}
	return out
}

func TestNth(t *testing.T) {
	for n, want := range map[int]string{1: "10.112.0.1", 255: "10.112.0.255", 256: "10.112.1.0", 70_000: "10.113.17.112", 1<<20 - 1: "10.127.255.255"} {
		if got := nth(ranges4[serviceRange], n); got.String() != want {
			t.Errorf("address %d is %s, want %s", n, got, want)
		}
	}
}

// Nothing of a cluster's own is left in an anonymous recording, and what belongs together still does.
func TestAnAnonymousRecording(t *testing.T) {
	shape := regexp.MustCompile(`^((ns|svc|slice|pod|recorded-node|zone|port|proxy)-\d{5}|recorded)$`)
	moved := append(slices.Collect(maps.Values(ranges4)), slices.Collect(maps.Values(ranges6))...)
	seen := map[netip.Prefix]bool{}
	rapid.Check(t, func(t *rapid.T) {
		live := newPlane(t)
		var out bytes.Buffer
		at := time.Duration(0)
		s := newTimelineWriter(&out, func() time.Duration { at += time.Second; return at }, true)
		for range 3 {
			for range 5 {
				live.disturb(t)
			}
			live.tell(t, s)
		}
		if _, err := s.end(); err != nil {
			t.Fatal(err)
		}
		text := out.String()
		for _, m := range regexp.MustCompile(`"(?:name|namespace|nodeName|zone|kubernetes.io/service-name|topology.kubernetes.io/zone)":"([^"]*)"`).FindAllStringSubmatch(text, -1) {
			if !shape.MatchString(m[1]) {
				t.Fatalf("%s stands in\n%s", m[0], text)
			}
		}
		for _, a := range addressesIn(text) {
			i := slices.IndexFunc(moved, func(p netip.Prefix) bool { return p.Contains(a) })
			if i < 0 {
				t.Fatalf("%s stands in\n%s", a, text)
			}
			seen[moved[i]] = true
		}
		for _, m := range regexp.MustCompile(`"(?:nodePort|healthCheckNodePort)":(\d+)`).FindAllStringSubmatch(text, -1) {
			if !strings.HasPrefix(m[1], "310") {
				t.Fatalf("%s stands in\n%s", m[0], text)
			}
		}
		if strings.Contains(text, secret) {
			t.Fatalf("it has what it must not keep:\n%s", text)
		}
		again := newPlane(t)
		again.do(t, text)
		if want, got := len(live.shown(t)), len(again.shown(t)); want != got {
			t.Fatalf("it leads to %d objects, there are %d\n%s", got, want, text)
		}
	})
	if len(seen) != len(moved) {
		t.Errorf("the recordings have addresses only in %v of %v", slices.Collect(maps.Keys(seen)), moved)
	}
}

// addressesIn returns all IP addresses in a text, except the unspecified ones, 0.0.0.0 and ::.
func addressesIn(text string) (all []netip.Addr) {
	for _, word := range regexp.MustCompile(`[0-9A-Fa-f.:]{2,}`).FindAllString(text, -1) {
		for _, part := range []string{word, strings.Trim(word, ".:")} { // with and without what only stands beside it
			if a, err := netip.ParseAddr(part); err == nil && !a.IsUnspecified() {
				all = append(all, a)
				break
			}
		}
	}
	return all
}

func TestAddressesInAText(t *testing.T) {
	text := `{"a":"10.1.2.3","b":["fd00::1","::","0.0.0.0/0","2001:470::/32"],"port":80,"at":"12:30:45"} from 10.0.0.4: to fd00::2.`
	if got, want := fmt.Sprint(addressesIn(text)), "[10.1.2.3 fd00::1 2001:470:: 10.0.0.4 fd00::2]"; got != want {
		t.Errorf("found %s, want %s", got, want)
	}
}

// A Service, its slice, its node and its pod still know each other.
func TestAnonymousObjectsStillBelongTogether(t *testing.T) {
	var out bytes.Buffer
	s := newTimelineWriter(&out, func() time.Duration { return 0 }, true)
	s.replaceKind(kindNode, []any{&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-a"}}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-b"}}})
	s.replaceKind(kindService, []any{&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "pay", Namespace: "shop"}, Spec: corev1.ServiceSpec{ClusterIP: "10.0.0.9", ClusterIPs: []string{"10.0.0.9"},
		Ports: []corev1.ServicePort{{Name: "grpc", Port: 80}}}}})
	s.replaceKind(kindPod, []any{&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pay-1", Namespace: "shop"}, Spec: corev1.PodSpec{NodeName: "worker-b"}, Status: corev1.PodStatus{PodIP: "10.1.2.3"}}})
	s.replaceKind(kindSlice, []any{&discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: "pay-x", Namespace: "shop", Labels: map[string]string{discoveryv1.LabelServiceName: "pay"}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: ptr("grpc")}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.1.2.3"}, NodeName: ptr("worker-b")}}}})
	if _, err := s.end(); err != nil {
		t.Fatal(err)
	}
	line, err := timeline.Parse("f", out.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{
		`"name":"recorded-node-00001"`, `"name":"recorded-node-00002"`,
		`"clusterIP":"10.112.0.1","clusterIPs":["10.112.0.1"]`,
		`"addresses":["10.128.0.1"],"conditions":{},"nodeName":"recorded-node-00002"`,
		`"nodeName":"recorded-node-00002"`,
	} {
		if !strings.Contains(line.Given[i].JSON, want) {
			t.Errorf("given %d is %s, without %s", i, line.Given[i].JSON, want)
		}
	}
	for i, want := range map[int]string{2: `"name":"port-00001"`, 3: `"name":"port-00001"`, 4: `"podIP":"10.128.0.1"`} {
		if !strings.Contains(line.Given[i].JSON, want) {
			t.Errorf("given %d is %s, without %s", i, line.Given[i].JSON, want)
		}
	}
	if want := fmt.Sprintf(`"%s":"svc-00001"`, discoveryv1.LabelServiceName); !strings.Contains(line.Given[3].JSON, want) || !strings.Contains(line.Given[2].JSON, `"name":"svc-00001"`) {
		t.Errorf("the slice is not the Service's: %s", line.Given[3].JSON)
	}
}

func TestTooSmallRange(t *testing.T) {
	n := newRenamer()
	n.assign()
	n.counts[ranges4[outsideRange].String()] = 1<<20 - 1
	n.addressText(outsideRange, "192.0.2.1")
	if n.err == nil || !strings.Contains(n.err.Error(), "172.16.0.0/12") {
		t.Errorf("got %v", n.err)
	}
}
