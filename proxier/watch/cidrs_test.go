package watch

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
)

func TestPodCIDRs(t *testing.T) {
	with := func(name string, cidrs ...string) *v1.Node {
		n := nodeObject("1")
		n.Name, n.Spec.PodCIDRs = name, cidrs
		return n
	}
	for _, test := range []struct {
		name       string
		node       *v1.Node
		want, fail string
	}{
		{"both families", with("node-1", "10.244.1.0/24", "fd00:244:1::/64"), "[10.244.1.0/24 fd00:244:1::/64]", ""},
		{"none yet", with("node-1"), "[]", "spec.podCIDRs is empty"},
		{"another Node, from a server that selects nothing", with("node-2", "10.244.2.0/24"), "[]", "is not there"},
		{"nonsense", with("node-1", "x"), "[]", "reading the pod addresses"},
	} {
		server := httptest.NewServer(&api{T: t, lists: map[string][]any{nodesPath: {test.node}}, watches: map[string][]chan []byte{}})
		got, err := PodCIDRs(context.Background(), &rest.Config{Host: server.URL}, "node-1")
		server.Close()
		if fmt.Sprint(got) != test.want || (err != nil) != (test.fail != "") || err != nil && !strings.Contains(err.Error(), test.fail) {
			t.Errorf("%s: %v, error %v; want %s, %q", test.name, got, err, test.want, test.fail)
		}
	}
}
