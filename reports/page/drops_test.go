package page

import (
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/reports/chart"
)

// In a long run a bar is the share of its bin's connections: one of ten has a tenth of the height, whatever other bins have. The twin, a short
// run, has counts.
func TestALongRunHasShares(t *testing.T) {
	for step, share := range map[time.Duration]bool{time.Minute: true, time.Second: false} {
		x := chart.Axis{To: 3 * step, Step: step, Buckets: 3}
		n := chart.NewTally(3)
		n.Attempts, n.Dropped = []int{1000, 10, 10}, []int{0, 1, 10}
		var c lossChart
		if share {
			c.shares(x, n)
		} else {
			c.perSecond(x, n, 1000)
		}
		if len(c.Shapes) != 2 || strings.HasPrefix(c.Title, "Share of connections") != share || strings.Contains(c.Lines[0].Text, "%") != share {
			t.Fatalf("step %v: %+v", step, c)
		}
		if height := c.Shapes[1].Height; share && height != chartBase-chartTop || !share && height != 2 {
			t.Errorf("step %v: a loss of all in a bin has a height of %v", step, height)
		}
		if height := c.Shapes[0].Height; share && height != (chartBase-chartTop)/10 {
			t.Errorf("step %v: a tenth has a height of %v", step, height)
		}
	}
}
