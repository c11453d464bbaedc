package replay_test

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/hitless/hitless/lab/replay"
)

// from makes a client connect from this address.
func from(a netip.Addr) func(*rest.Config) {
	return func(c *rest.Config) {
		d := &net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(a, 0))}
		c.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			return d.DialContext(ctx, network, address)
		}
	}
}

// twoNodes are clients at two addresses.
func twoNodes(t *testing.T, l lab) (here netip.Addr, one, two kubernetes.Interface) {
	here = netip.MustParseAddr("127.0.0.1")
	return here, l.client(t, from(here)), l.client(t, from(netip.MustParseAddr("127.0.0.2")))
}

func TestLostEventAffectsOneNode(t *testing.T) {
	l := start(t, nil)
	here, one, two := twoNodes(t, l)
	w, other := follow(t, one, metav1.ListOptions{ResourceVersion: "1"}), follow(t, two, metav1.ListOptions{ResourceVersion: "1"})
	l.apply(t, configMap("before", nil)) // 2: under way, perhaps
	told := make(chan string, 9)
	l.Fault(replay.LoseNext{Scope: replay.Scope{Addr: here, Resource: "configmaps"}, Lost: func(what string) { told <- what }})
	l.apply(t, service("another-resource", ""))
	l.apply(t, configMap("a", nil)) // 4
	l.apply(t, configMap("b", nil))
	expect(t, w, "ADDED before 2", "ADDED b 5")
	expect(t, other, "ADDED before 2", "ADDED a 4", "ADDED b 5")
	if what := <-told; what != "ADDED ConfigMap default/a" || len(told) > 0 {
		t.Errorf("the fault is told of %q and %d more", what, len(told))
	}
	// Who resumes does not hear of it either; who begins anew sees what is there.
	expect(t, follow(t, one, metav1.ListOptions{ResourceVersion: "2"}), "ADDED b 5")
	expect(t, follow(t, two, metav1.ListOptions{ResourceVersion: "2"}), "ADDED a 4", "ADDED b 5")
	expect(t, follow(t, one, metav1.ListOptions{ResourceVersion: "0"}), "ADDED a 4", "ADDED b 5", "ADDED before 2")
	if all, err := one.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{}); err != nil || len(all.Items) != 3 {
		t.Errorf("the list has %d objects, want 3: %v", len(all.Items), err)
	}
	remove(t, l, "ConfigMap", "a")
	expect(t, w, "DELETED a 6")
}

// A fault loses one event, for any number of watches in scope.
func TestEachFaultLosesOneEvent(t *testing.T) {
	l := start(t, nil)
	client := l.client(t)
	chosen := metav1.ListOptions{ResourceVersion: "1", LabelSelector: "!hidden"}
	w, second := follow(t, client, chosen), follow(t, client, chosen)
	hidden := map[string]string{"hidden": ""}
	maps := replay.Scope{Resource: "configmaps"}
	l.Fault(replay.LoseNext{Scope: maps})()
	l.apply(t, configMap("lifted-before", nil)) // 2
	expect(t, w, "ADDED lifted-before 2")
	expect(t, second, "ADDED lifted-before 2")

	lift := l.Fault(replay.LoseNext{Scope: maps})
	l.Fault(replay.LoseNext{Scope: maps})
	l.apply(t, configMap("unseen", hidden)) // 3
	l.apply(t, configMap("a", nil))
	l.apply(t, configMap("a", hidden)) // 5: as a deletion
	l.apply(t, configMap("b", nil))
	expect(t, w, "ADDED b 6")
	expect(t, second, "ADDED b 6")
	lift()
	expect(t, follow(t, client, metav1.ListOptions{ResourceVersion: "2", LabelSelector: "!hidden"}), "ADDED b 6")
}

// An informer keeps an object whose deletion was lost until it lists again.
func TestLostDeletionIsSeenAtTheNextList(t *testing.T) {
	l := start(t, nil)
	l.apply(t, service("web", "10.96.0.10"))
	l.apply(t, service("other", "10.96.0.11"))
	here, one, two := twoNodes(t, l)
	stale, fresh := inform(t, one).Core().V1().Services().Informer().GetStore(), inform(t, two).Core().V1().Services().Informer().GetStore()
	eventually(t, "the watches are open", func() bool { return len(l.Watchers(replay.Scope{Resource: "services"})) == 2 })
	scope := replay.Scope{Addr: here, Resource: "services"}
	l.Fault(replay.LoseNext{Scope: scope})
	remove(t, l, "Service", "web")
	l.apply(t, service("later", "10.96.0.12"))
	want := there(t, two)
	eventually(t, "the other node has all", func() bool { return slices.Equal(held(fresh), want) })
	eventually(t, "the node has what came later", func() bool { return slices.Contains(held(stale), "later 5") })
	if got := held(stale); !slices.Contains(got, "web 2") {
		t.Errorf("the node heard of the deletion: it holds %q", got)
	}
	l.Fault(replay.CutWatches{Scope: scope})
	l.apply(t, service("last", "10.96.0.13"))
	eventually(t, "the node has resumed its watch", func() bool { return slices.Contains(held(stale), "last 6") })
	if got := held(stale); !slices.Contains(got, "web 2") {
		t.Errorf("a watch that resumed told of the deletion: the node holds %q", got)
	}
	l.Fault(replay.ExpireNextWatch{Scope: scope})
	l.Fault(replay.CutWatches{Scope: scope})
	want = there(t, two)
	eventually(t, "the node has all after a list", func() bool { return slices.Equal(held(stale), want) })
}

// An event from before the fault is not lost, even if it is delayed.
func TestPendingEventsAreNotLost(t *testing.T) {
	l := start(t, nil)
	w := follow(t, l.client(t), metav1.ListOptions{ResourceVersion: "1"})
	release := l.Fault(replay.DelayWatches{By: time.Hour})
	l.apply(t, configMap("a", nil))
	l.Fault(replay.LoseNext{})
	l.apply(t, configMap("b", nil))
	l.apply(t, configMap("c", nil))
	release()
	expect(t, w, "ADDED a 2", "ADDED c 4")
}
