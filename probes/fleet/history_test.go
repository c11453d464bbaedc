package fleet

import (
	"testing"
	"time"

	"github.com/hitless/hitless/record"
)

// A clock can stop, as that of a suspended machine. The bound of earlier records then contains the stop, that of later ones does not.
func TestClockThatStopped(t *testing.T) {
	var o offset
	o.update(10*time.Second, 10*time.Second+4*time.Millisecond, 1*time.Second)
	if o.best() != 9*time.Second+2*time.Millisecond || o.bound(0) < 2*time.Millisecond || o.bound(0) > 3*time.Millisecond {
		t.Fatalf("%v, off by %v at most", o.best(), o.bound(0))
	}
	o.update(20*time.Second, 20*time.Second+4*time.Millisecond, 6*time.Second)
	if off := (o.best() - 9*time.Second).Abs(); o.bound(0) < off {
		t.Errorf("after a stop of 5 s the difference is %v, and the bound of earlier times only %v", o.best(), o.bound(0))
	}
	o.update(30*time.Second, 30*time.Second+4*time.Millisecond, 16*time.Second)
	if o.bound(0) > 5*time.Millisecond || (o.best()-14*time.Second).Abs() > o.bound(0) {
		t.Errorf("%v, off by %v at most, long after", o.best(), o.bound(0))
	}
}

// A long exchange does not widen the bounds of a short one, except by the drift since then.
func TestShortExchangeNarrowsClockBounds(t *testing.T) {
	var o offset
	o.update(time.Second, time.Second+time.Millisecond, 0)
	o.update(2*time.Second, 4*time.Second, 2*time.Second) // somewhere within two seconds
	if o.bound(0) > 4*time.Millisecond || (o.best()-time.Second).Abs() > o.bound(0) {
		t.Errorf("%v, off by %v at most", o.best(), o.bound(0))
	}
	if o.bound(time.Hour) < 2*time.Second {
		t.Errorf("the bound for an hour before is only %v", o.bound(time.Hour))
	}
}

// A missing record begins before the first missing attempt, also when the last exchange was long after it.
func TestMissingRecordCoversMissingAttempts(t *testing.T) {
	truly := func(own time.Duration) time.Duration { return own + own/2000 } // the worker's clock is slow by 500 ppm
	h := &history{lane: 100, began: true, begin: 0, nextSeq: 5}
	for own := time.Second; own <= 100*time.Second; own += 33 * time.Second {
		h.clock.update(truly(own), truly(own), own)
	}
	e, found := h.missingRecord(100*time.Millisecond, truly(100*time.Second))
	body, _ := e.Body.(record.MissingRecord)
	if missing := truly(500 * time.Millisecond); !found || body.From > missing || missing-body.From > 200*time.Millisecond {
		t.Errorf("the missing record is %+v, the first missing attempt was at %v", body, missing)
	}
}
