package subject

import (
	"errors"
	"testing"

	"github.com/hitless/hitless/record"
)

// kube-proxy before v1.21 serves IPv4 only by default (KEP-563).
func TestCheckFamily(t *testing.T) {
	for name, six := range map[string]bool{"bundled": true, "kube-proxy@v1.21.0/ipvs": true, "kube-proxy@v1.20.15/iptables": false} {
		spec, err := Parse(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := spec.CheckFamily(record.IPv4); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, f := range []record.Family{record.IPv6, record.DualStack} {
			if err := spec.CheckFamily(f); errors.As(err, new(*LackError)) == six {
				t.Errorf("%s with %s: %v", name, f, err)
			}
		}
	}
}
