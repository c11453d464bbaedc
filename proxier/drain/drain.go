// Package drain tracks draining real servers and decides when they may be deleted. It does not read the kernel and
// starts no timer.
package drain

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/hitless/hitless/proxier/kernel"
)

// Key identifies a real server of one virtual server. The same pod drains separately behind each virtual server.
type Key struct {
	Virtual kernel.Key
	Real    netip.AddrPort
}

// Status is the API's state of a draining endpoint.
type Status uint8

// The states. Serving has no time limit.
const (
	Serving    Status = iota // listed, and serving or unready
	Terminated               // listed, terminating and no longer serving
	Unlisted                 // not listed: the pod is gone, or the Service no longer selects it
)

// Limits bound how long a real server with connections stays at weight 0, counted from the start of its status.
type Limits struct {
	Terminated time.Duration // the default is 900 s, IPVS's own timeout of idle TCP connections
	Unlisted   time.Duration
	// FirstCheck is the time until the first check of a draining real server; 0 checks at every opportunity. Each
	// check that finds connections makes the next interval a quarter longer, up to maxIntervalFactor times
	// FirstCheck, since old connections tend to last.
	FirstCheck time.Duration
}

const maxIntervalFactor = 12

// Entry is one real server that drains.
type Entry struct {
	Key
	Generation uint64 // changes each time that the real server starts to drain
	Status     Status
	Since      time.Time // start of this status

	interval time.Duration // until the next check
	due      time.Time     // time of the next check
}

// List is the set of draining real servers. The zero value is not usable. It is not safe for concurrent use.
type List struct {
	limits     Limits
	entries    map[Key]Entry
	generation uint64
}

// NewList returns an empty list.
func NewList(limits Limits) *List { return &List{limits: limits, entries: map[Key]Entry{}} }

// Len returns the number of draining real servers.
func (l *List) Len() int { return len(l.entries) }

// Put adds a real server, or updates its status. It reports whether the entry is new.
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
	e.interval = l.limits.FirstCheck
	l.schedule(&e, now)
	l.entries[k] = e
	return !known
}

// schedule sets the time of the next check, at the latest when the limit ends. An entry past its limit could not be
// deleted, and is retried at the usual interval.
func (l *List) schedule(e *Entry, now time.Time) {
	e.due = now.Add(e.interval)
	if limit, has := l.limit(*e); has && e.due.After(e.Since.Add(limit)) && !now.After(e.Since.Add(limit)) {
		e.due = e.Since.Add(limit)
	}
}

// Checked schedules the next check of an entry that stays. Entries that left the list, or drain again since, are not
// changed.
func (l *List) Checked(e Entry, now time.Time) {
	if on, known := l.entries[e.Key]; known && on.Generation == e.Generation {
		on.interval = min(on.interval+on.interval/4, maxIntervalFactor*l.limits.FirstCheck)
		l.schedule(&on, now)
		l.entries[e.Key] = on
	}
}

// Next returns the time of the earliest check; false if nothing drains.
func (l *List) Next() (at time.Time, any bool) {
	for _, e := range l.entries {
		if !any || e.due.Before(at) {
			at, any = e.due, true
		}
	}
	return at, any
}

// Due returns the entries to check, sorted by virtual and real server. It includes entries that are due within an
// eighth of their interval, to save wake-ups.
func (l *List) Due(now time.Time) []Entry {
	return l.sorted(func(e Entry) bool { return e.due.Sub(now) <= e.interval/8 })
}

// Cancel removes a real server that is wanted again, and reports whether it was on the list.
func (l *List) Cancel(k Key) bool {
	_, known := l.entries[k]
	delete(l.entries, k)
	return known
}

// Finish removes an entry whose real server is about to be deleted. It returns false and changes nothing if the real
// server was cancelled, or started to drain again, since the entry was read.
func (l *List) Finish(e Entry) bool {
	if now, known := l.entries[e.Key]; !known || now.Generation != e.Generation {
		return false
	}
	delete(l.entries, e.Key)
	return true
}

// Expired reports whether an entry has reached its limit.
func (l *List) Expired(e Entry, now time.Time) bool {
	limit, has := l.limit(e)
	return has && now.Sub(e.Since) >= limit
}

// limit returns the time limit of an entry; false for none.
func (l *List) limit(e Entry) (time.Duration, bool) {
	switch e.Status {
	case Terminated:
		return l.limits.Terminated, true
	case Unlisted:
		return l.limits.Unlisted, true
	}
	return 0, false
}

// Entries returns all entries, sorted by virtual and real server.
func (l *List) Entries() []Entry { return l.sorted(func(Entry) bool { return true }) }

// sorted returns the matching entries, by virtual and real server.
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
