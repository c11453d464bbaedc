package proxier

import (
	"fmt"
	"time"
)

// durations checks the flags that are durations. Only zeros mean something special, and not for all.
func (s *settings) durations() error {
	for _, d := range []struct {
		flag  string
		value time.Duration
		least time.Duration
	}{
		{"--ipvs-min-sync-period", s.minSync, 0},
		{"--ipvs-sync-period", s.sync, time.Nanosecond},
		{"--reconcile-period", s.reconcile, 0},
		{"--drain-interval", s.drainInterval, 0},
		{"--drain-period", s.drainListed, 0},
		{"--drain-gone-period", s.drainGone, 0},
		{"--ipvs-tcp-timeout", s.timeouts.TCP, 0},
		{"--ipvs-tcpfin-timeout", s.timeouts.TCPFin, 0},
		{"--ipvs-udp-timeout", s.timeouts.UDP, 0},
	} {
		switch {
		case d.value >= d.least:
		case d.least == 0:
			return fmt.Errorf("%s is %v; it can be 0 or more", d.flag, d.value)
		default:
			return fmt.Errorf("%s is %v; it has to be more than 0", d.flag, d.value)
		}
	}
	return nil
}
