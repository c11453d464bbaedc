package main

import (
	"testing"
	"time"
)

// A fault is read whole, or is an error before the proxier starts.
func TestFaultsOf(t *testing.T) {
	for text, wrong := range map[string]bool{
		"node-1:stale-endpoint": false, "*:drop:3s:150ms": false, "node-1:rule:1s:2s:in tcp dport 80 ct state {new} drop": false,
		"*:take-table:1s:1h:inet stale-policy": false, "*:take-table": true, "node-1:nonsense": true, "node-1:drop": true, "*:stale-endpoint:1s:1s": true, "node-1:drop:x:1s": true, "node-1": true, "node-2:nonsense": false,
	} {
		if _, err := faultsOf("node-1", []string{text}); (err != nil) != wrong {
			t.Errorf("%s: %v", text, err)
		}
	}
	all, err := faultsOf("node-1", []string{"*:rule:1s:2s:in meta mark 1:2 drop"})
	if err != nil || len(all) != 1 || all[0].argument != "in meta mark 1:2 drop" || all[0].after != time.Second || all[0].lasts != 2*time.Second {
		t.Errorf("%+v, %v", all, err)
	}
}
