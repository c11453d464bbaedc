//go:build netns

package probes

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/record"
)

// probeTogether makes the attempts of lanes on one engine, in the network namespace of the caller.
func probeTogether(base int64, from, length time.Duration, lanes ...Lane) (got []record.Attempt, err error) {
	engine, err := New(Config{Base: base, Seed: base, Record: func(a record.Attempt) { got = append(got, a) }})
	if err != nil {
		return nil, err
	}
	engine.lateLimit = time.Minute // a slow machine must not change the classes
	for _, l := range lanes {
		if err := errors.Join(engine.Start(l, from), engine.Stop(l.ID, from+length)); err != nil {
			return nil, err
		}
	}
	timer := time.AfterFunc(from+length-engine.Now(), engine.Close)
	defer timer.Stop()
	err = engine.Run(context.Background())
	return got, err
}

// The proxy and the backend cause the same loss for a client of the Service. The lane to the pod's own address distinguishes them.
func TestDirectLaneSeparatesProxyFromBackend(t *testing.T) {
	const drop = " prerouting priority raw; "
	for _, test := range []struct {
		name string
		lose func(t *testing.T, w *network)
		says string
	}{
		{"the proxy drops what goes to the Service", func(t *testing.T, w *network) {
			w.router.nft(t, translate+"chain raw { type filter hook"+drop+"ip daddr 203.0.113.10 drop; }")
		}, "answered at its own address all the while: the loss is the proxy's, or the network's on the way to it"},
		{"the backend drops everything", func(t *testing.T, w *network) {
			w.backend.nft(t, "chain raw { type filter hook"+drop+"tcp dport 8080 drop; }")
		}, "the loss is the backend's or the network's, not the proxy's"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := newNetwork(t)
			w.serve(t, func(l net.Listener) { serve(l, answer("web-1", "node-1")) })
			base := monotonic(t)
			service := wiredLane(20)
			shortDeadlines(&service)
			service.Name = "vip"
			pod := service
			pod.ID, pod.Name, pod.Target, pod.Control, pod.Role = 2, "pod-web-1", netip.MustParseAddrPort("10.0.0.11:8080"), true, record.RolePod
			done := make(chan struct{})
			go func() {
				defer close(done)
				c, err := newClock(base)
				if err != nil {
					t.Error(err)
					return
				}
				time.Sleep(1100*time.Millisecond - c.Now()) // the scheduled time of the fault
				test.lose(t, w)
			}()
			var got []record.Attempt
			w.client.must(t, func() (err error) {
				got, err = probeTogether(base, 100*time.Millisecond, 3*time.Second, service, pod)
				return err
			})
			<-done
			r := judged(t, []Lane{service, pod}, got)
			if len(r.Lanes[0].Outages) != 1 {
				t.Fatalf("outages %+v, want one", r.Lanes[0].Outages)
			}
			if o := r.Lanes[0].Outages[0]; !strings.Contains(o.Cause.Text, test.says) || len(o.Pods) != 1 || o.Pods[0].Tried < 10 {
				t.Errorf("the cause says %q of %+v, want %q", o.Cause.Text, o.Pods, test.says)
			}
		})
	}
}
