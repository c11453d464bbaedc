//go:build linux

package guest

import (
	"slices"
	"testing"

	"github.com/hitless/hitless/lab"
	"github.com/hitless/hitless/lab/replay"
	"github.com/hitless/hitless/lab/topology"
	"github.com/hitless/hitless/scenarios"
)

// The site of a run offers what the decision about the run was made with. Only lanes past the load balancer take one away.
func TestSiteOffersWhatTheLabOffers(t *testing.T) {
	for _, controlPlane := range []string{"kube", "replay"} {
		for _, kernel := range []string{"", KernelHost} {
			want := Plan{ControlPlane: controlPlane, Kernel: kernel}.Offers()
			l := &lab.Lab{}
			if controlPlane == "replay" {
				l.Net, l.Replay = &topology.Network{}, replay.New()
			}
			through, past := client{}, client{}
			through.throughBalancer = true
			if got := newSite(want, l, through, nil, nil, nil).Offers(); !slices.Equal(got, want) {
				t.Errorf("%s %q: the site offers %v, want %v", controlPlane, kernel, got, want)
			}
			want = slices.DeleteFunc(want, func(c scenarios.Capability) bool { return c == scenarios.OwnLoadBalancer })
			if got := newSite(Offers(controlPlane, kernel), l, past, nil, nil, nil).Offers(); !slices.Equal(got, want) {
				t.Errorf("%s %q past the load balancer: the site offers %v, want %v", controlPlane, kernel, got, want)
			}
		}
	}
}
