package units

import "testing"

// An instant has one format in short runs and one in long ones.
func TestInstants(t *testing.T) {
	for seconds, want := range map[float64]string{-1.5: "-1.500 s", 0: "+0.000 s", 12.304: "+12.304 s", 599.999: "+599.999 s", 600: "+0:10:00.000", 54164.105: "+15:02:44.105", 604800: "+168:00:00.000"} {
		if got := At(seconds); got != want {
			t.Errorf("%v is %q, want %q", seconds, got, want)
		}
	}
}
