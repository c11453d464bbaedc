package clusterwatch

import (
	"context"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/internal/testfiles"
	"github.com/hitless/hitless/lab/replay/replaytest"
)

// A watch that cannot measure ends with one error, within a bounded time, and leaves no folder.
func TestWhatCannotBeWatched(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	a := testfiles.Loopback(t)
	listen(t, a)
	s.service("web", map[string]string{"tier": "edge"}, a)
	s.service("inside", nil)
	s.service("dead", map[string]string{"tier": "dead"}, testfiles.Loopback(t))
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and never answers
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	denied := newStand(t, "watch services")
	for name, c := range map[string]struct {
		change func(*Options)
		want   []string
	}{
		"no cluster":         {func(o *Options) { o.Kubeconfig = "" }, []string{"--kubeconfig FILE"}},
		"no such kubeconfig": {func(o *Options) { o.Kubeconfig += "x" }, []string{"reading the kubeconfig"}},
		"no such context":    {func(o *Options) { o.Context = "other" }, []string{`context "other" does not exist`}},
		"a bad selector":     {func(o *Options) { o.Selector = "a in b" }, []string{"--selector", "tier!=test"}},
		"selector of none":   {func(o *Options) { o.Selector = "tier=none" }, []string{"no Service", `"tier=none"`}},
		"empty namespace":    {func(o *Options) { o.Namespace = "void" }, []string{"no Service in the namespace void"}},
		"only cluster IPs":   {func(o *Options) { o.Selector = "!tier" }, []string{"none of the 1 Services has an external address", "--target nodePort"}},
		"no node ports":      {func(o *Options) { o.NodePorts = true }, []string{"none of the 3 Services has a TCP node port"}},
		"no answer":          {func(o *Options) { o.Selector = "tier=dead" }, []string{"none of the 1 addresses answers", "refused"}},
		"a proxy's name":     {func(o *Options) { o.Proxy = "kube-proxy" }, []string{"NAMESPACE/NAME"}},
		"a place to listen":  {func(o *Options) { o.Listen = "9753" }, []string{"--listen", "HOST:PORT"}},
		"a port in use":      {func(o *Options) { o.Listen = silent.Addr().String() }, []string{"address already in use", "--listen"}},
		"UDP":                {func(o *Options) { o.Protocol = "udp-fresh" }, []string{"TCP ports only"}},
		"a rate of too many": {func(o *Options) { o.Rate, o.Selector = 5000, "tier=edge" }, []string{"five-tuples", "--rate 5000"}},
		"a missing verb":     {func(o *Options) { o.Kubeconfig = denied.config }, []string{"watch services", "in all namespaces", "ClusterRole"}},
		"a silent server":    {func(o *Options) { o.Kubeconfig = replaytest.Kubeconfig(t, "http://"+silent.Addr().String()) }, []string{"did not answer within", "reaches it"}},
		"no server":          {func(o *Options) { o.Kubeconfig = replaytest.Kubeconfig(t, "http://127.0.0.1:1") }, []string{"did not answer within", "refused"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := s.options()
			o.Within = 2 * time.Second
			c.change(&o)
			begin := time.Now()
			_, err := Run(context.Background(), o)
			if err == nil {
				t.Fatal("it was measured")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v\nlacks %q", err, want)
				}
			}
			if took := time.Since(begin); took > patience/2 {
				t.Errorf("the error took %v", took)
			}
			if left, _ := os.ReadDir(o.Out); len(left) > 1 || len(left) == 1 && left[0].Name() != ".lock" {
				t.Errorf("it left %v", left)
			}
		})
	}
}
