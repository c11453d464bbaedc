package kubelet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// Each letter of results is one check: + passes, - fails, t times out. Decisions are a second and a sign.
func TestKeepProbing(t *testing.T) {
	tests := []struct {
		name    string
		spec    corev1.Probe
		last    until
		results string
		want    string
	}{
		{"first success decides", corev1.Probe{PeriodSeconds: 5}, untilNever, "+", "0+"},
		{"one failure is not enough", corev1.Probe{PeriodSeconds: 5}, untilNever, "+--+", "0+ 15+"},
		{"three failures decide", corev1.Probe{PeriodSeconds: 5}, untilNever, "+---+", "0+ 15- 20+"},
		{"thresholds", corev1.Probe{PeriodSeconds: 1, SuccessThreshold: 3, FailureThreshold: 2}, untilNever,
			"++-+++--", "5+ 7-"},
		{"initial delay", corev1.Probe{PeriodSeconds: 2, InitialDelaySeconds: 7}, untilNever, "-+", "9+"},
		{"defaults are the API server's", corev1.Probe{}, untilNever, "-+---", "10+ 40-"},
		{"a slow check has failed", corev1.Probe{PeriodSeconds: 10, TimeoutSeconds: 3, FailureThreshold: 2}, untilNever,
			"+tt", "0+ 23-"},
		{"liveness stops at failure", corev1.Probe{PeriodSeconds: 1, FailureThreshold: 1}, untilFailure, "++-+-", "0+ 2-"},
		{"startup stops at success", corev1.Probe{PeriodSeconds: 1}, untilFirst, "-+--", "1+"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				begin := time.Now()
				left := tt.results
				var got []string
				keepProbing(ctx, &tt.spec, begin, func(ctx context.Context) error {
					if left == "" {
						cancel()
						return ctx.Err()
					}
					result := left[0]
					left = left[1:]
					switch result {
					case '-':
						return errors.New("no")
					case 't':
						<-ctx.Done()
						return ctx.Err()
					}
					return nil
				}, tt.last, func(ok bool) {
					sign := map[bool]string{true: "+", false: "-"}[ok]
					got = append(got, fmt.Sprintf("%d%s", int(time.Since(begin).Seconds()), sign))
				})
				cancel()
				if diff := cmp.Diff(tt.want, strings.Join(got, " ")); diff != "" {
					t.Errorf("decisions (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestExitCode(t *testing.T) {
	for text, want := range map[string]int32{
		"exit status 0": 0, "exit status 3": 3, "signal: killed": 137, "signal: terminated": 143,
		"signal: segmentation fault (core dumped)": 139, "something else": 255,
	} {
		if got := exitCode(text); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

func TestSleepOf(t *testing.T) {
	tests := []struct {
		argv string
		want time.Duration
		ok   bool
	}{
		{"sleep|10", 10 * time.Second, true},
		{"/bin/sleep|0.5", 500 * time.Millisecond, true},
		{"sh|-c|sleep 3", 3 * time.Second, true},
		{"/bin/sh|-c|sleep 3 && touch x", 0, false},
		{"sleep|soon", 0, false},
		{"sleep|-1", 0, false},
		{"sleep|1e300", 0, false},
		{"wget|http://x", 0, false},
	}
	for _, tt := range tests {
		got, ok := sleepOf(strings.Split(tt.argv, "|"))
		if got != tt.want || ok != tt.ok {
			t.Errorf("%s: %s %v, want %s %v", tt.argv, got, ok, tt.want, tt.ok)
		}
	}
}
