//go:build linux

package capture

import "testing"

func TestACounterOfTheKernel(t *testing.T) {
	const text = "Ip: Forwarding TTL\nIp: 1 64\nTcp: RtoAlgorithm ActiveOpens PassiveOpens\nTcp: 1 17 4\n"
	if n, err := counter([]byte(text), "Tcp", "ActiveOpens"); n != 17 || err != nil {
		t.Errorf("%d, %v: want 17", n, err)
	}
	for what, c := range map[string]struct{ text, table, name string }{
		"another name":   {text, "Tcp", "Opens"},
		"another table":  {text, "Udp", "ActiveOpens"},
		"no values":      {"Tcp: ActiveOpens\n", "Tcp", "ActiveOpens"},
		"too few values": {"Tcp: ActiveOpens\nTcp:\n", "Tcp", "ActiveOpens"},
		"no number":      {"Tcp: ActiveOpens\nTcp: x\n", "Tcp", "ActiveOpens"},
		"nothing at all": {"", "Tcp", "ActiveOpens"},
	} {
		if n, err := counter([]byte(c.text), c.table, c.name); err == nil {
			t.Errorf("%s: %d without an error", what, n)
		}
	}
}
