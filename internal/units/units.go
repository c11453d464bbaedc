// Package units formats durations, instants and counts for reports.
package units

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Seconds is a time in seconds from the start of the run, rounded to microseconds; the nearest float of so few digits
// prints the same everywhere.
func Seconds(d time.Duration) float64 {
	return float64(d.Round(time.Microsecond)/time.Microsecond) / 1e6
}

// Millis is a duration in milliseconds, rounded to microseconds.
func Millis(d time.Duration) float64 {
	return float64(d.Round(time.Microsecond)/time.Microsecond) / 1e3
}

// MillisDown and millisUp round bounds outwards, so that what they hold stays inside.
func MillisDown(d time.Duration) float64 { return Millis(d.Truncate(time.Microsecond)) }

func MillisUp(d time.Duration) float64 {
	if rest := d % time.Microsecond; rest > 0 {
		d += time.Microsecond - rest
	}
	return Millis(d)
}

// Thousands writes a number with its thousands apart: 120,000.
func Thousands(n int) string {
	digits := strconv.Itoa(n)
	if n < 0 {
		return "-" + Thousands(-n)
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

// Plural writes a number with its noun: 1 event, 2 events.
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return Thousands(n) + " " + noun + "s"
}

// MsText writes milliseconds as people read them: 0.4 ms, 12 ms, 1.51 s, 74 s.
func MsText(ms float64) string {
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

// Range writes bounds: 41–43 ms, or 12.80–13.10 s.
func Range(lowerMs, upperMs float64) string {
	low, high := MsText(lowerMs), MsText(upperMs)
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

// At writes an instant of the run: +12.304 s, and from ten minutes on +15:02:44.105.
func At(seconds float64) string {
	if seconds < 600 {
		return fmt.Sprintf("%+.3f s", seconds)
	}
	ms := int64(math.Round(seconds * 1e3))
	return fmt.Sprintf("+%d:%02d:%02d.%03d", ms/3_600_000, ms/60_000%60, ms/1000%60, ms%1000)
}

// Length writes the length of a run: 131 s, 25 min, 24.0 h.
func Length(seconds float64) string {
	switch {
	case seconds < 600:
		return MsText(seconds * 1e3)
	case seconds < 2*3600:
		return strconv.FormatFloat(seconds/60, 'f', 0, 64) + " min"
	}
	return strconv.FormatFloat(seconds/3600, 'f', 1, 64) + " h"
}

// Clock writes an instant as seconds, or as hours and minutes when it is late in a long run: 40 s, 1:30, 2 h.
func Clock(at time.Duration) string {
	if at < 10*time.Minute {
		return strconv.Itoa(int(at/time.Second)) + " s"
	}
	h, m, s := int(at.Hours()), int(at.Minutes())%60, int(at.Seconds())%60
	if m == 0 && s == 0 {
		return strconv.Itoa(h) + " h"
	}
	text := strconv.Itoa(h) + ":" + two(m)
	if s != 0 {
		text += ":" + two(s)
	}
	return text
}

func two(n int) string { return strconv.Itoa(n/10) + strconv.Itoa(n%10) }

// Tenth rounds a coordinate, so that pages stay small and equal everywhere.
func Tenth(v float64) float64 { return math.Round(v*10) / 10 }

// Clipped cuts a text that would swell the form that it stands in; report.json has the whole.
func Clipped(text string) string {
	const most = 1000
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}
