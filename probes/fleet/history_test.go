package fleet

import (
	"testing"
	"time"

	"github.com/hitless/hitless/record"
)

// A clock that stood still, as that of a machine that was suspended, is known for what it is: what was recorded before may be off by
// all that it stood still, and what comes after is not.
func TestClockThatStopped(t *testing.T) {
	var o offset
	o.update(10*time.Second, 10*time.Second+4*time.Millisecond, 1*time.Second)
	if o.best() != 9*time.Second+2*time.Millisecond || o.bound(0) < 2*time.Millisecond || o.bound(0) > 3*time.Millisecond {
		t.Fatalf("%v, off by %v at most", o.best(), o.bound(0))
	}
	o.update(20*time.Second, 20*time.Second+4*time.Millisecond, 6*time.Second)
	if off := (o.best() - 9*time.Second).Abs(); o.bound(0) < off {
		t.Errorf("after 5 s without time the difference is taken for %v, and what was before may be off by %v only", o.best(), o.bound(0))
	}
	o.update(30*time.Second, 30*time.Second+4*time.Millisecond, 16*time.Second)
	if o.bound(0) > 5*time.Millisecond || (o.best()-14*time.Second).Abs() > o.bound(0) {
		t.Errorf("%v, off by %v at most, long after", o.best(), o.bound(0))
	}
}

// Short exchanges tell more than long ones, and are not forgotten, but for what the clocks may have parted since.
func TestShortExchangeNarrowsClockBounds(t *testing.T) {
	var o offset
	o.update(time.Second, time.Second+time.Millisecond, 0)
	o.update(2*time.Second, 4*time.Second, 2*time.Second) // somewhere within two seconds
	if o.bound(0) > 4*time.Millisecond || (o.best()-time.Second).Abs() > o.bound(0) {
		t.Errorf("%v, off by %v at most", o.best(), o.bound(0))
	}
	if o.bound(time.Hour) < 2*time.Second {
		t.Errorf("an hour before, the clocks may have parted by %v only", o.bound(time.Hour))
	}
}

// A gap begins before the first attempt that is missing, also when the clocks were last compared long after it.
func TestMissingRecordCoversMissingAttempts(t *testing.T) {
	truly := func(own time.Duration) time.Duration { return own + own/2000 } // the worker's clock is slow by 500 ppm
	h := &history{lane: 100, began: true, begin: 0, nextSeq: 5}
	for own := time.Second; own <= 100*time.Second; own += 33 * time.Second {
		h.clock.update(truly(own), truly(own), own)
	}
	e, told := h.missingRecord(100*time.Millisecond, truly(100*time.Second))
	body, _ := e.Body.(record.MissingRecord)
	if missing := truly(500 * time.Millisecond); !told || body.From > missing || missing-body.From > 200*time.Millisecond {
		t.Errorf("the missing record is %+v, the first missing attempt was at %v", body, missing)
	}
}
