// Package drain remembers which real servers are on their way out, and decides when they may be deleted. It reads no
// kernel and starts no timer.
package drain

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/hitless/hitless/proxier/kernel"
)

// Key names a real server of one virtual server. The same pod drains apart behind each virtual server.
type Key struct {
	Virtual kernel.Key
	Real    netip.AddrPort
}

// Status is what the API says of an endpoint that drains.
type Status uint8

// The states of an endpoint that drains.
const (
	Serving Status = iota // listed, and serves or is unready: it may take as long as it likes with established connections
	Listed                // listed, but terminates and does not serve any more
	Gone                  // not listed: the pod is gone, or the Service does not select it any more
)

// Limits bound how long a real server with connections stays at weight 0. They count from the moment in which it was
// last known to serve, or was taken from the list.
type Limits struct {
	Listed time.Duration // as long as IPVS remembers an idle TCP connection (900 s), by default
	Gone   time.Duration
	// Look is the time until the first look at one that drains; 0 for looks at every occasion. A connection that has lasted long lasts
	// on, so that each look which finds some makes the next a quarter later, up to mostLooks times as late: hundreds that drain for
	// hours cost little.
	Look time.Duration
}

const mostLooks = 12

// Entry is one real server that drains.
type Entry struct {
	Key
	Generation uint64 // another each time that the real server starts to drain
	Status     Status
	Since      time.Time // start of this status

	pause time.Duration // before the next look
	due   time.Time     // of it
}

// List is the set of real servers that drain. The zero value is not usable. It is not safe for concurrent use.
type List struct {
	limits     Limits
	entries    map[Key]Entry
	generation uint64
}

// NewList returns an empty list.
func NewList(limits Limits) *List { return &List{limits: limits, entries: map[Key]Entry{}} }

// Len returns how many real servers drain.
func (l *List) Len() int { return len(l.entries) }

// Put starts to drain a real server, or notes the status of one that drains already. It reports whether it is new.
func (l *List) Put(k Key, status Status, now time.Time) bool {
	e, known := l.entries[k]
	if known && e.Status == status {
		return false
	}
	if !known {
		l.generation++
		e = Entry{Key: k, Generation: l.generation}
	}
	e.Status, e.Since = status, now
	e.pause = l.limits.Look
	l.wait(&e, now)
	l.entries[k] = e
	return !known
}

// wait sets when an entry is to be looked at next: no later than when its time is up. One whose time was up at the last look, and
// which is still there, could not be deleted; it waits like any other.
func (l *List) wait(e *Entry, now time.Time) {
	e.due = now.Add(e.pause)
	if limit, has := l.limit(*e); has && e.due.After(e.Since.Add(limit)) && !now.After(e.Since.Add(limit)) {
		e.due = e.Since.Add(limit)
	}
}

// Looked notes that an entry was looked at and stays. One that is not on the list any more, or drains anew, is left alone.
func (l *List) Looked(e Entry, now time.Time) {
	if on, known := l.entries[e.Key]; known && on.Generation == e.Generation {
		on.pause = min(on.pause+on.pause/4, mostLooks*l.limits.Look)
		l.wait(&on, now)
		l.entries[e.Key] = on
	}
}

// Next is when the next entry is to be looked at; false when none drains.
func (l *List) Next() (at time.Time, any bool) {
	for _, e := range l.entries {
		if !any || e.due.Before(at) {
			at, any = e.due, true
		}
	}
	return at, any
}

// Due are the entries that are to be looked at, sorted by virtual and real server: those whose time has come, and those that would
// have to be looked at soon after, in proportion to how long they wait, since a look wakes the machine.
func (l *List) Due(now time.Time) []Entry {
	return l.sorted(func(e Entry) bool { return e.due.Sub(now) <= e.pause/8 })
}

// Cancel takes a real server from the list because it is wanted again; it reports whether it was there.
func (l *List) Cancel(k Key) bool {
	_, known := l.entries[k]
	delete(l.entries, k)
	return known
}

// Finish takes an entry from the list after its real server was found ready to be deleted. It reports false, and changes
// nothing, when the real server was cancelled or started to drain anew since the entry was read.
func (l *List) Finish(e Entry) bool {
	if now, known := l.entries[e.Key]; !known || now.Generation != e.Generation {
		return false
	}
	delete(l.entries, e.Key)
	return true
}

// Expired reports whether an entry has used up its time.
func (l *List) Expired(e Entry, now time.Time) bool {
	limit, has := l.limit(e)
	return has && now.Sub(e.Since) >= limit
}

// limit is how long an entry may have its status; false for as long as it likes.
func (l *List) limit(e Entry) (time.Duration, bool) {
	switch e.Status {
	case Listed:
		return l.limits.Listed, true
	case Gone:
		return l.limits.Gone, true
	}
	return 0, false
}

// Entries returns all entries, sorted by virtual and real server.
func (l *List) Entries() []Entry { return l.sorted(func(Entry) bool { return true }) }

// sorted are the entries that are wanted, by virtual and real server.
func (l *List) sorted(wanted func(Entry) bool) []Entry {
	var all []Entry
	for _, e := range l.entries {
		if wanted(e) {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b Entry) int {
		return cmp.Or(a.Virtual.Compare(b.Virtual), a.Real.Compare(b.Real))
	})
	return all
}
