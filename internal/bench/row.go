package bench

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Row has the costs of one subject at one number of Services. Times are of the lab's clock.
type Row struct {
	Subject  string `json:"subject"`
	MinSync  string `json:"minSyncPeriod"` // as given, or "default"
	Services int    `json:"services"`

	// From the start of the program until the kernel serves all Services with all endpoints.
	ColdStartMs float64 `json:"coldStartMs"`
	// From the stored write until the kernel serves it: the median of several, and the longest.
	EndpointChangeMs    float64 `json:"endpointChangeMs"`
	EndpointChangeMaxMs float64 `json:"endpointChangeMaxMs"`
	ServiceAddMs        float64 `json:"serviceAddMs"`
	ServiceAddMaxMs     float64 `json:"serviceAddMaxMs"`
	// From the last of 100 stored writes, 50 ms apart, until the kernel serves all of them. Each replaces one of a Service's 100
	// endpoints.
	RolloutMs float64 `json:"rolloutMs"`

	// CPU time of the program and its children: for the cold start until it is idle, for one endpoint change and for the rollout.
	CPUSeconds          float64 `json:"cpuSeconds"`
	EndpointChangeCPUMs float64 `json:"endpointChangeCpuMs"`
	RolloutCPUMs        float64 `json:"rolloutCpuMs"`

	// Largest resident set of the program, and largest memory charged to it and its children, with that of the kernel.
	PeakMB      float64 `json:"peakMB"`
	PeakGroupMB float64 `json:"peakGroupMB"`

	// Netlink requests for one endpoint change, with the messages of transactions; null when the kernel cannot count them.
	NetlinkMessages *int `json:"netlinkMessages"`

	// CPU time of the observer during the cold start, which the subject could not use.
	ObserverMs float64 `json:"observerMs"`
}

// String returns the row as a line of progress.
func (r Row) String() string {
	messages := "?"
	if r.NetlinkMessages != nil {
		messages = fmt.Sprint(*r.NetlinkMessages)
	}
	return fmt.Sprintf("%s (min-sync %s) at %d Services: cold start %.0f ms, endpoint %.2f ms, Service %.2f ms, rollout %.0f ms, "+
		"CPU %.2f s, %.0f MB, %s netlink messages", r.Subject, r.MinSync, r.Services, r.ColdStartMs, r.EndpointChangeMs,
		r.ServiceAddMs, r.RolloutMs, r.CPUSeconds, r.PeakMB, messages)
}

// ms returns milliseconds, rounded to microseconds.
func ms(d time.Duration) float64 { return float64(d.Round(time.Microsecond).Microseconds()) / 1000 }

func sortedCopy[T cmp.Ordered](values []T) []T {
	sorted := slices.Clone(values)
	slices.Sort(sorted)
	return sorted
}

// Limits of Gate, on the virtual clock, whose times are reproducible.
const (
	maxChangeMs = 10.0
	maxGrowth   = 2.0 // of the cost of a change, with ten times as many Services
)

// Gate returns an error for each cost of a subject's changes above its limit: more than 10 ms from the API to the kernel, or time
// or messages that grow with the number of Services. It needs rows of two numbers of Services.
func Gate(rows []Row, subject string) error {
	var own []Row
	for _, r := range rows {
		if r.Subject == subject && r.MinSync == "default" {
			own = append(own, r)
		}
	}
	if len(own) < 2 {
		return fmt.Errorf("%s has rows of %d numbers of Services; growth needs two", subject, len(own))
	}
	few, many := own[0], own[len(own)-1]
	var errs []error
	for _, c := range []struct {
		what        string
		few, many   float64
		most, slack float64
	}{
		{"one endpoint, ms", few.EndpointChangeMs, many.EndpointChangeMs, maxChangeMs, 0},
		{"CPU of one endpoint, ms", few.EndpointChangeCPUMs, many.EndpointChangeCPUMs, maxChangeMs, 0.5}, // may include a heartbeat
		{"one Service, ms", few.ServiceAddMs, many.ServiceAddMs, maxChangeMs, 0},
		{"netlink messages", messagesOf(few), messagesOf(many), 100, 0},
	} {
		if c.many > c.most {
			errs = append(errs, fmt.Errorf("%s at %d Services: %s is %.4g, more than %.4g", subject, many.Services, c.what, c.many, c.most))
		}
		if c.many > c.few*maxGrowth+c.slack {
			errs = append(errs, fmt.Errorf("%s: %s grows from %.4g at %d Services to %.4g at %d", subject, c.what, c.few, few.Services, c.many, many.Services))
		}
	}
	return errors.Join(errs...)
}

// messagesOf returns a number above every limit for messages that were not counted.
func messagesOf(r Row) float64 {
	if r.NetlinkMessages == nil {
		return 1e9
	}
	return float64(*r.NetlinkMessages)
}
