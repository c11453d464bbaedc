package bench

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Row is what was measured of one subject at one number of Services. Times are of the lab's clock.
type Row struct {
	Subject  string `json:"subject"`
	MinSync  string `json:"minSyncPeriod"` // as given, or "default"
	Services int    `json:"services"`

	// From the start of the program until the kernel has all Services with all endpoints.
	ColdStartMs float64 `json:"coldStartMs"`
	// From the write until the kernel has it: the median of several, and the longest.
	EndpointChangeMs    float64 `json:"endpointChangeMs"`
	EndpointChangeMaxMs float64 `json:"endpointChangeMaxMs"`
	ServiceAddMs        float64 `json:"serviceAddMs"`
	ServiceAddMaxMs     float64 `json:"serviceAddMaxMs"`
	// From the last of 100 writes, 50 ms apart, each of which replaces one endpoint of a Service that has 100, until the
	// kernel has all of them.
	RolloutMs float64 `json:"rolloutMs"`

	// CPU time of the program and those that it calls: of the cold start until it is idle again, of one change of an
	// endpoint, and of the rollout.
	CPUSeconds          float64 `json:"cpuSeconds"`
	EndpointChangeCPUMs float64 `json:"endpointChangeCpuMs"`
	RolloutCPUMs        float64 `json:"rolloutCpuMs"`

	// Largest resident set of the program, and largest sum of all memory that is charged to it and to those it calls, the
	// kernel's for them included.
	PeakMB      float64 `json:"peakMB"`
	PeakGroupMB float64 `json:"peakGroupMB"`

	// Requests to the kernel by netlink for one change of an endpoint, all transactions' messages counted; null when this
	// kernel cannot count them.
	NetlinkMessages *int `json:"netlinkMessages"`

	// CPU time of the observer in the cold start, which took it from the subject.
	ObserverMs float64 `json:"observerMs"`
}

// String is a line of progress.
func (r Row) String() string {
	messages := "?"
	if r.NetlinkMessages != nil {
		messages = fmt.Sprint(*r.NetlinkMessages)
	}
	return fmt.Sprintf("%s (min-sync %s) at %d Services: cold start %.0f ms, endpoint %.2f ms, Service %.2f ms, rollout %.0f ms, "+
		"CPU %.2f s, %.0f MB, %s netlink messages", r.Subject, r.MinSync, r.Services, r.ColdStartMs, r.EndpointChangeMs,
		r.ServiceAddMs, r.RolloutMs, r.CPUSeconds, r.PeakMB, messages)
}

// ms is a duration in milliseconds with three digits.
func ms(d time.Duration) float64 { return float64(d.Round(time.Microsecond).Microseconds()) / 1000 }

func sortedCopy[T cmp.Ordered](values []T) []T {
	sorted := slices.Clone(values)
	slices.Sort(sorted)
	return sorted
}
