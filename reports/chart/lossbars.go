package chart

import "github.com/hitless/hitless/internal/units"

// Bars says how LossBars draws: Height and Text are those of k connections of bucket i.
type Bars struct {
	Base   float64 // bottom of the bars
	Apart  float64 // space between two bars
	Height func(i, k int) float64
	Text   func(i, k int, class string) string // nil for bars without text
}

// LossBars stacks the dropped and the delayed connections of each bucket. A bar stays visible however small it is, and ends at the top.
func (t *Tally) LossBars(x Axis, b Bars) (shapes []Shape) {
	for i := range t.Dropped {
		left := x.X(x.Start(i))
		s := Shape{X: left, Y: b.Base, Width: max(1.5, units.Tenth(x.X(x.Start(i+1))-left-b.Apart))}
		for _, part := range [...]struct {
			class string
			n     int
		}{{"dropped", t.Dropped[i]}, {"delayed", t.Delayed[i]}} {
			if part.n == 0 {
				continue
			}
			s.Class, s.Height = part.class, units.Tenth(min(s.Y, max(2, b.Height(i, part.n))))
			s.Y = units.Tenth(s.Y - s.Height)
			if b.Text != nil {
				s.Text = b.Text(i, part.n, part.class)
			}
			shapes = append(shapes, s)
		}
	}
	return shapes
}
