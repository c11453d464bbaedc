package values

import (
	"strings"
	"testing"
	"time"
)

// Each type accepts valid values; its errors name the valid ones.
func TestTypes(t *testing.T) {
	for _, c := range []struct {
		check func(string) error
		good  []string
		bad   []string
		want  string // in the error
	}{
		{Duration(time.Second, time.Hour).Check, []string{"1s", "1h", "30m"}, []string{"", "5", "999ms", "2h"}, "a duration from 1s to 1h0m0s"},
		{Number(0, 100).Check, []string{"0", "100"}, []string{"", "-1", "101", "none", "1.5"}, "a whole number from 0 to 100"},
		{Word("Local", "Cluster").Check, []string{"Local"}, []string{"", "local"}, "Local, Cluster"},
		{List("a", "b").Check, []string{"a", "b,a"}, []string{"", "a,", "a,a", "c"}, "some of a,b, each once"},
		{Type[bool](Switch).Check, []string{"on", "off"}, []string{"", "true"}, "on, off"},
		{Type[string](Text).Check, []string{"x"}, []string{""}, "give a name"},
		{Type[float64](Rate).Check, []string{"0.1", "5000"}, []string{"0", "1e-7", "NaN", "5001", "Inf"}, "attempts a second"},
		{Type[string](Name).Check, []string{"web", "web-1.a"}, []string{"", "Web", "-a", "a_b"}, "small letters"},
		{Type[[]string](Addresses).Check, []string{"-", "192.0.2.1", "192.0.2.1,192.0.2.2", "192.0.2.1,fd00::1"}, []string{"", "1.2.3", "fe80::1%eth0", "::ffff:192.0.2.1"}, "not an IP address"},
	} {
		for _, text := range c.good {
			if err := c.check(text); err != nil {
				t.Errorf("%q: %v", text, err)
			}
		}
		for _, text := range c.bad {
			if err := c.check(text); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%q gave %v, want %q", text, err, c.want)
			}
		}
	}
}
