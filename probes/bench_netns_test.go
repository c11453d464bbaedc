//go:build netns

package probes

import (
	"fmt"
	"testing"
)

// BenchmarkVeth is BenchmarkLoopback through two veth pairs and a router that translates the address with nftables,
// like a real probe. Most work of the router and the backend runs in the client's context, so the results include the whole path.
func BenchmarkVeth(b *testing.B) {
	for _, rate := range []float64{1000, 5000} {
		for _, end := range []string{CloseFIN, CloseRST} {
			b.Run(fmt.Sprintf("rate=%v/close=%s", rate, end), func(b *testing.B) {
				w := newNetwork(b)
				w.backend.must(b, func() error { _, err := backendProcess(b, "10.0.0.11:8080"); return err })
				l := wiredLane(rate)
				l.Close, l.DialDeadline = end, DefaultDialDeadline
				w.client.must(b, func() error { return benchmarkLane(b, l) })
			})
		}
	}
}
