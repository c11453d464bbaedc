package bench

import (
	"errors"
	"fmt"
)

// What a subject has to keep to pass Gate, on the virtual clock, where times are instructions and repeat.
const (
	mostChangeMs = 10.0
	mostGrowth   = 2.0 // of what a change costs, from the fewest Services to ten times as many
)

// Gate says what of a subject's rows is dearer than a change may be: more than 10 ms from the API to the kernel, or growing
// with the number of Services, in time or in messages. Rows of two numbers of Services are needed.
func Gate(rows []Row, subject string) error {
	var own []Row
	for _, r := range rows {
		if r.Subject == subject && r.MinSync == "default" {
			own = append(own, r)
		}
	}
	if len(own) < 2 {
		return fmt.Errorf("%s was measured at %d numbers of Services; growth needs two", subject, len(own))
	}
	few, many := own[0], own[len(own)-1]
	var errs []error
	for _, c := range []struct {
		what        string
		few, many   float64
		most, slack float64
	}{
		{"one endpoint, ms", few.EndpointChangeMs, many.EndpointChangeMs, mostChangeMs, 0},
		{"CPU of one endpoint, ms", few.EndpointChangeCPUMs, many.EndpointChangeCPUMs, mostChangeMs, 0.5}, // a heartbeat may fall into it
		{"one Service, ms", few.ServiceAddMs, many.ServiceAddMs, mostChangeMs, 0},
		{"netlink messages", messagesOf(few), messagesOf(many), 100, 0},
	} {
		if c.many > c.most {
			errs = append(errs, fmt.Errorf("%s at %d Services: %s is %.4g, more than %.4g", subject, many.Services, c.what, c.many, c.most))
		}
		if c.many > c.few*mostGrowth+c.slack {
			errs = append(errs, fmt.Errorf("%s: %s grows from %.4g at %d Services to %.4g at %d", subject, c.what, c.few, few.Services, c.many, many.Services))
		}
	}
	return errors.Join(errs...)
}

// messagesOf is far above any limit where they were not counted.
func messagesOf(r Row) float64 {
	if r.NetlinkMessages == nil {
		return 1e9
	}
	return float64(*r.NetlinkMessages)
}
