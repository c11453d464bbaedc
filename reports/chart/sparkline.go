package chart

import (
	"strings"

	"github.com/hitless/hitless/analysis"
)

// Sparkline draws the dropped connections over the run in at most width blocks; empty when there were none.
func Sparkline(r *analysis.Report, width int) string {
	seconds, _ := r.LostSeconds()
	if len(seconds) == 0 {
		return ""
	}
	length := 0
	for _, l := range r.Lanes {
		length = max(length, len(l.DroppedPerSecond))
	}
	width = min(width, length)
	sums, most := make([]int, width), 0
	for _, s := range seconds {
		i := s.Second * width / length
		sums[i] += s.Dropped
		most = max(most, sums[i])
	}
	blocks := []rune("·▁▂▃▄▅▆▇█")
	var b strings.Builder
	for _, n := range sums {
		level := 0
		if n > 0 {
			level = 1 + (n*(len(blocks)-2))/most
		}
		b.WriteRune(blocks[level])
	}
	return b.String()
}
