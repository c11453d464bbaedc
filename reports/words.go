package reports

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// seconds is a time in seconds from the start of the run, rounded to microseconds; the nearest float of so few digits
// prints the same everywhere.
func seconds(d time.Duration) float64 {
	return float64(d.Round(time.Microsecond)/time.Microsecond) / 1e6
}

// millis is a duration in milliseconds, rounded to microseconds.
func millis(d time.Duration) float64 {
	return float64(d.Round(time.Microsecond)/time.Microsecond) / 1e3
}

// millisDown and millisUp round bounds outwards, so that what they hold stays inside.
func millisDown(d time.Duration) float64 { return millis(d.Truncate(time.Microsecond)) }

func millisUp(d time.Duration) float64 {
	if rest := d % time.Microsecond; rest > 0 {
		d += time.Microsecond - rest
	}
	return millis(d)
}

// thousands writes a number with its thousands apart: 120,000.
func thousands(n int) string {
	digits := strconv.Itoa(n)
	if n < 0 {
		return "-" + thousands(-n)
	}
	var b strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(d)
	}
	return b.String()
}

// plural writes a number with its noun: 1 event, 2 events.
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return thousands(n) + " " + noun + "s"
}

// msText writes milliseconds as people read them: 0.4 ms, 12 ms, 1.51 s, 74 s.
func msText(ms float64) string {
	switch {
	case ms < 9.95:
		return strconv.FormatFloat(ms, 'f', 1, 64) + " ms"
	case ms < 999.5:
		return strconv.FormatFloat(ms, 'f', 0, 64) + " ms"
	case ms < 9995:
		return strconv.FormatFloat(ms/1e3, 'f', 2, 64) + " s"
	case ms < 99950:
		return strconv.FormatFloat(ms/1e3, 'f', 1, 64) + " s"
	}
	return strconv.FormatFloat(ms/1e3, 'f', 0, 64) + " s"
}

// rangeText writes bounds: 41–43 ms, or 12.80–13.10 s.
func rangeText(lowerMs, upperMs float64) string {
	low, high := msText(lowerMs), msText(upperMs)
	if low == high {
		return low
	}
	if upperMs < 999.5 {
		low = strings.TrimSuffix(low, " ms")
	} else if lowerMs >= 999.5 {
		low = strings.TrimSuffix(low, " s")
	}
	if lowerMs == 0 {
		low = "0"
	}
	return low + "–" + high
}

// atText writes an instant of the run: +12.304 s.
func atText(seconds float64) string { return fmt.Sprintf("%+.3f s", seconds) }
