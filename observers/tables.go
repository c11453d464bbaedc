//go:build linux

package observers

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hitless/hitless/record"
)

// pauses are the pauses before the reads of an IPVS or BPF table after an event: the first read records the state before the
// change, the next ones find a change soon, and the last ones find those of slow proxies. They add up to 19 s.
var pauses = [...]time.Duration{0, 5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 200 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond, time.Second, time.Second, 2 * time.Second,
	2 * time.Second, 4 * time.Second, 8 * time.Second}

const (
	// firstPauseAfterFailure is the index of the pause that follows a failed attempt. It is long enough that a node whose
	// attempts keep failing is read at most every 100 ms.
	firstPauseAfterFailure = 5
	// minReadInterval is the shortest time between two reads of a table.
	minReadInterval = 5 * time.Millisecond
)

// backendTable holds the weights of each Service address's backends. In nftables each backend has weight 1.
type backendTable map[ServiceAddress]map[netip.AddrPort]int

// TableKinds selects the tables that are watched.
type TableKinds struct {
	IPVS, NFTables, BPF bool
	// IPVSAfterFailure suppresses the reads of IPVS and BPF tables until an attempt has failed. Each read wakes up the VM.
	IPVSAfterFailure bool
}

// Tables records changes of the IPVS, nftables and BPF tables of several nodes. nftables notifies of changes. The others do not, and
// reading them at a fixed rate would keep the VM awake: they are read for a while after each event that may change them, and
// while attempts fail.
type Tables struct {
	polled    []*poller
	nftables  []*nftMonitor
	ipvsIdle  atomic.Bool // no attempt has failed yet, and reads wait for one
	mu        sync.Mutex
	addresses []ServiceAddress
}

// NewTables opens the tables of the nodes. A kernel without a selected table is an error.
func NewTables(nodes []Node, kinds TableKinds, recorder record.Recorder, now func() time.Duration) (t *Tables, err error) {
	t = &Tables{}
	defer func() {
		if err != nil {
			t.close()
			t = nil
		}
	}()
	t.ipvsIdle.Store(kinds.IPVSAfterFailure)
	for _, n := range nodes {
		if kinds.IPVS {
			read, end, err := openIPVS(n)
			if err != nil {
				return t, fmt.Errorf("watching the IPVS table of %s: %w", n.Name, err)
			}
			p := newPoller(n.Name, record.TableIPVS, t.watched, read, recorder, now)
			p.end = end
			t.polled = append(t.polled, p)
		}
		if kinds.BPF {
			t.polled = append(t.polled, newBPFPoller(n, t.watched, recorder, now))
		}
		if kinds.NFTables {
			m, err := newNFTMonitor(n, 0, t.watched, recorder, now)
			if err != nil {
				return t, err
			}
			t.nftables = append(t.nftables, m)
		}
	}
	return t, nil
}

// close closes the tables of an observer that does not run.
func (t *Tables) close() {
	for _, p := range t.polled {
		p.end()
	}
	for _, m := range t.nftables {
		m.stop()
	}
}

// Watch adds a Service address to those that are watched on every node.
func (t *Tables) Watch(s ServiceAddress) {
	t.mu.Lock()
	if slices.Contains(t.addresses, s) {
		t.mu.Unlock()
		return
	}
	t.addresses = append(t.addresses, s)
	t.mu.Unlock()
	t.readPolled()
	t.readNFTables()
}

func (t *Tables) watched() []ServiceAddress {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.addresses)
}

// Run watches until ctx ends, and closes the tables. A table that cannot be read is recorded as a warning and is not watched any more.
func (t *Tables) Run(ctx context.Context) error {
	var all sync.WaitGroup
	for _, p := range t.polled {
		all.Go(func() { p.run(ctx) })
	}
	for _, m := range t.nftables {
		all.Go(func() { m.run(ctx) })
	}
	all.Wait()
	return nil
}

// EventRecorded starts reads after an event of a kind that makes proxies change their tables or that replaces a node.
func (t *Tables) EventRecorded(kind record.Kind) {
	switch kind {
	case record.KindPod, record.KindEndpoint, record.KindProxy, record.KindFault:
		if !t.ipvsIdle.Load() {
			t.readPolled()
		}
	case record.KindNode:
		t.readNFTables()
	}
}

// AttemptFailed starts reads of the IPVS and BPF tables after a failed attempt, and ends the idling of TableKinds.IPVSAfterFailure.
func (t *Tables) AttemptFailed() {
	t.ipvsIdle.Store(false)
	for _, p := range t.polled {
		notify(p.failed)
	}
}

func (t *Tables) readPolled() {
	for _, p := range t.polled {
		notify(p.changed)
	}
}

func (t *Tables) readNFTables() {
	for _, m := range t.nftables {
		notify(m.changed)
	}
}

// notify wakes up the reader of a channel with room for one notification.
func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// tableRecorder records the differences between successive reads of one node's table.
type tableRecorder struct {
	node    string
	table   record.Table
	watched func() []ServiceAddress
	read    func(addresses []ServiceAddress) (backendTable, error)
	record  record.Recorder
	now     func() time.Duration
	changed chan struct{} // the table may have changed

	last    backendTable
	lastAt  time.Duration           // the last instant at which the table was known to equal last
	covered map[ServiceAddress]bool // the addresses that last is about
}

// reading is a table as it was read.
type reading struct {
	table     backendTable
	addresses []ServiceAddress
}

func newTableRecorder(node string, table record.Table, watched func() []ServiceAddress, read func([]ServiceAddress) (backendTable, error), recorder record.Recorder,
	now func() time.Duration) *tableRecorder {
	return &tableRecorder{node: node, table: table, watched: watched, read: read, record: recorder, now: now, changed: make(chan struct{}, 1)}
}

// look reads the table.
func (r *tableRecorder) look() (found reading, err error) {
	found.addresses = r.watched()
	found.table, err = r.read(found.addresses)
	return found, err
}

// take records the changes of a table that was read, and keeps it. It was known to be so until an instant.
func (r *tableRecorder) take(found reading, from, at, until time.Duration, program string) {
	r.recordChanges(found.table, from, at, program)
	r.last, r.lastAt, r.covered = found.table, until, map[ServiceAddress]bool{}
	for _, s := range found.addresses {
		r.covered[s] = true
	}
}

// recordChanges records each Service address whose backends changed after from and were found changed at the instant at. The
// program that made the change may be empty.
func (r *tableRecorder) recordChanges(found backendTable, from, at time.Duration, program string) {
	for _, s := range addressesOf(r.last, found) {
		weights, present := found[s]
		before, was := r.last[s]
		if present == was && maps.Equal(weights, before) {
			continue
		}
		text, body := r.describe(s, weights, present)
		if r.covered[s] { // else it is the first look at the address, and shows no change
			body.From = new(from)
		}
		if program != "" && r.covered[s] {
			body.By = program
			text += ", changed by " + program
		}
		r.record.Event(record.Event{At: at, Node: r.node, Object: s.Address.String(), Text: text, Body: body})
	}
}

// recordEnd records that the table is not watched any more. From then on the state of its addresses is not known.
func (r *tableRecorder) recordEnd(err error) {
	text := fmt.Sprintf("%s of %s is not watched any more: %v", r.title(), r.node, err)
	r.warn(text)
	for _, s := range r.watched() {
		r.record.Event(record.Event{At: r.now(), Node: r.node, Object: s.Address.String(), Text: text,
			Body: record.KernelTable{Table: r.table, Address: s.Address.Addr(), Port: s.Address.Port(), Protocol: s.protocol(), State: record.TableUnread}})
	}
}

func (r *tableRecorder) warn(text string) {
	r.record.Event(record.Event{At: r.now(), Node: r.node, Object: string(r.table), Text: text,
		Body: record.Log{Program: "hitless", Level: "warning"}})
}

// title is the table's name in texts.
func (r *tableRecorder) title() string {
	switch r.table {
	case record.TableIPVS:
		return "IPVS"
	case record.TableBPF:
		return "the BPF load balancer"
	}
	return string(r.table)
}

// addressesOf returns the addresses of both tables in a fixed order.
func addressesOf(a, b backendTable) []ServiceAddress {
	both := maps.Clone(a)
	if both == nil {
		both = backendTable{}
	}
	maps.Copy(both, b)
	return slices.SortedFunc(maps.Keys(both), func(x, y ServiceAddress) int {
		if c := x.Address.Compare(y.Address); c != 0 {
			return c
		}
		return strings.Compare(x.protocol(), y.protocol())
	})
}

// describe returns the state of a Service address, and a sentence about it.
func (r *tableRecorder) describe(s ServiceAddress, weights map[netip.AddrPort]int, present bool) (text string, body record.KernelTable) {
	body = record.KernelTable{Table: r.table, Address: s.Address.Addr(), Port: s.Address.Port(), Protocol: s.protocol(), State: record.TablePresent,
		Backends: record.NewBackendList(weights)}
	text = fmt.Sprintf("%s of %s has for %s %s", r.title(), r.node, s.protocol(), s.Address)
	switch {
	case !present && r.table == record.TableNFTables:
		body.State = record.TableAbsent
		text += " no rule to a backend"
	case !present && r.table == record.TableBPF:
		body.State = record.TableAbsent
		text += " no entry"
	case !present:
		body.State = record.TableAbsent
		text += " no virtual server"
	case len(weights) == 0 && r.table == record.TableBPF:
		text += " no backend"
	case len(weights) == 0:
		text += " no real server"
	default:
		text += ": " + strings.ReplaceAll(body.Backends.String(), ",", ", ")
	}
	return text, body
}
