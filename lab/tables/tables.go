// Package tables watches the IPVS tables and the nftables of the nodes. Of nftables the kernel tells when they change. Of IPVS
// it tells nobody, and to keep asking would wake the machine up all the time: so those are looked at again and again for a while
// after whatever may change them, and while attempts fail. It is not for changing them.
package tables

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hitless/hitless/lab/topology"
	"github.com/hitless/hitless/reports"
)

// pauses come before the looks after something happened: one look at once, to know what was there before, then with short
// pauses, and longer ones until proxies that write their tables late have done so. Together they are 19 s.
var pauses = [...]time.Duration{0, 5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 200 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond, time.Second, time.Second, 2 * time.Second,
	2 * time.Second, 4 * time.Second, 8 * time.Second}

// afterFailure is the pause that follows a failed attempt: it lies before the longer ones, so that a node is looked at no
// more often than each 100 ms for as long as attempts fail.
const afterFailure = 5

// However much happens, looks are at least spacing apart, and rare enough to cost a node no more than a part in leisure of
// the time.
const (
	spacing = 5 * time.Millisecond
	leisure = 20
)

// What tables are called in the record.
const tableIPVS, tableNFTables = "ipvs", "nftables"

// Server is a virtual server: of IPVS, or what the rules of nftables translate.
type Server struct {
	Address netip.AddrPort
	UDP     bool
	From    netip.Prefix // where its connections come from; rules may tell by it
}

func (s Server) protocol() string {
	if s.UDP {
		return "udp"
	}
	return "tcp"
}

// Table is what a look found: the weights of the real servers of each virtual server.
type Table map[Server]map[netip.AddrPort]int

// Use says which tables are watched.
type Use struct {
	IPVS, NFTables bool
	// Quiet has IPVS looked at after events only from when an attempt has failed.
	Quiet bool
}

// Watcher watches the tables of several nodes.
type Watcher struct {
	nodes     []*watched
	followers []*follower
	quiet     atomic.Bool

	mu      sync.Mutex
	targets []Server
}

type watched struct {
	name   string
	table  string
	look   func() (Table, error)
	record reports.Recorder
	now    func() time.Duration

	changed, failed chan struct{}
	last            Table
	lastAt          time.Duration
	looked          bool
}

// New prepares to watch the nodes' tables. A kernel without them is an error.
func New(nodes []*topology.Node, use Use, record reports.Recorder, now func() time.Duration) (*Watcher, error) {
	w := &Watcher{}
	w.quiet.Store(use.Quiet)
	for _, n := range nodes {
		if use.IPVS {
			look, err := lookerOf(n)
			if err != nil {
				return nil, fmt.Errorf("watching the IPVS table of %s: %w", n.Name, err)
			}
			w.nodes = append(w.nodes, watch(n.Name, tableIPVS, func() (Table, error) { return look(w.watched()) }, record, now))
		}
		if use.NFTables {
			f, err := follow(n, 0, w.watched, record, now)
			if err != nil {
				return nil, err
			}
			w.followers = append(w.followers, f)
		}
	}
	return w, nil
}

func watch(name, table string, look func() (Table, error), record reports.Recorder, now func() time.Duration) *watched {
	return &watched{name: name, table: table, look: look, record: record, now: now, changed: make(chan struct{}, 1), failed: make(chan struct{}, 1)}
}

// Watch has a virtual server watched on every node from now on.
func (w *Watcher) Watch(s Server) {
	w.mu.Lock()
	if slices.Contains(w.targets, s) {
		w.mu.Unlock()
		return
	}
	w.targets = append(w.targets, s)
	w.mu.Unlock()
	w.lookAtIPVS()
	w.lookAtRules()
}

func (w *Watcher) watched() []Server {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.targets)
}

// Run watches until the context ends. A node whose table cannot be read is told in the record, and watched no longer.
func (w *Watcher) Run(ctx context.Context) error {
	var all sync.WaitGroup
	for _, n := range w.nodes {
		all.Go(func() { n.run(ctx) })
	}
	for _, f := range w.followers {
		all.Go(func() { f.run(ctx) })
	}
	all.Wait()
	return nil
}

// Happened tells of an event of the lab: of some, proxies change their tables, and a node may be made anew.
func (w *Watcher) Happened(kind reports.Kind) {
	switch kind {
	case reports.EventPod, reports.EventEndpoint, reports.EventProxy, reports.EventInjected:
		if !w.quiet.Load() {
			w.lookAtIPVS()
		}
	case reports.EventNode:
		w.lookAtRules()
	}
}

func (w *Watcher) lookAtIPVS() {
	for _, n := range w.nodes {
		n.wake(n.changed)
	}
}

func (w *Watcher) lookAtRules() {
	for _, f := range w.followers {
		f.wake(f.changed)
	}
}

// Failed tells that an attempt has failed. What becomes of the tables is of interest from then on, also when nothing fails any more
// because the balancer has left the node.
func (w *Watcher) Failed() {
	w.quiet.Store(false)
	for _, n := range w.nodes {
		n.wake(n.failed)
	}
}

func (n *watched) wake(which chan struct{}) {
	select {
	case which <- struct{}{}:
	default: // it has been told, and has not come to it yet
	}
}

func (n *watched) run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	defer timer.Stop()
	step, next, least := len(pauses), time.Time{}, time.Time{}
	begin := func(at int) {
		if at >= step {
			return // it is looked at more often as it is
		}
		due := time.Now().Add(pauses[at])
		if due.Before(least) {
			due = least
		}
		if step == len(pauses) || due.Before(next) {
			next = due
		}
		step = at
		timer.Reset(time.Until(next))
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.changed:
			begin(0)
		case <-n.failed:
			begin(afterFailure)
		case <-timer.C:
			began := time.Now()
			if err := n.compare(); err != nil {
				n.giveUp(err)
				return
			}
			ended := time.Now()
			least = ended.Add(max(spacing, leisure*ended.Sub(began)))
			if step++; step < len(pauses) {
				if next = ended.Add(pauses[step]); next.Before(least) {
					next = least
				}
				timer.Reset(time.Until(next))
			}
		}
	}
}

// compare looks at the table and records what is other than before.
func (n *watched) compare() error {
	began := n.now()
	found, err := n.look()
	if err != nil {
		return err
	}
	n.tell(found, n.lastAt, n.now(), "")
	n.last, n.lastAt, n.looked = found, began, true
	return nil
}

// tell records what is other than before: since an instant after from, and found so at another.
func (n *watched) tell(found Table, from, at time.Duration, by string) {
	for _, server := range servers(n.last, found) {
		weights, present := found[server]
		before, was := n.last[server]
		if present == was && maps.Equal(weights, before) {
			continue
		}
		e := n.event(server, weights, present, at)
		if n.looked {
			e.Attrs["fromNs"] = strconv.FormatInt(int64(from), 10)
		}
		if by != "" {
			e.Attrs["by"] = by
			e.Text += ", made so by " + by
		}
		n.record.Event(e)
	}
}

func (n *watched) giveUp(err error) {
	n.warn(fmt.Sprintf("%s of %s is watched no longer: %v", n.title(), n.name, err))
}

func (n *watched) warn(text string) {
	n.record.Event(reports.Event{At: n.now(), Kind: reports.EventLog, Node: n.name, Object: n.table, Text: text,
		Attrs: map[string]string{"program": "hitless", "level": "warning"}})
}

// title is what texts call the table.
func (n *watched) title() string {
	if n.table == tableIPVS {
		return "IPVS"
	}
	return n.table
}

// servers are those of both tables, in a fixed order.
func servers(a, b Table) []Server {
	both := maps.Clone(a)
	if both == nil {
		both = Table{}
	}
	maps.Copy(both, b)
	return slices.SortedFunc(maps.Keys(both), func(x, y Server) int {
		if c := x.Address.Compare(y.Address); c != 0 {
			return c
		}
		return strings.Compare(x.protocol(), y.protocol())
	})
}

func (n *watched) event(s Server, weights map[netip.AddrPort]int, present bool, at time.Duration) reports.Event {
	backends := reports.FormatBackends(weights)
	attrs := map[string]string{"table": n.table, "address": s.Address.Addr().String(), "port": strconv.Itoa(int(s.Address.Port())),
		"protocol": s.protocol(), "state": "present", "backends": backends}
	text := fmt.Sprintf("%s of %s has for %s %s", n.title(), n.name, s.protocol(), s.Address)
	switch {
	case !present && n.table == tableNFTables:
		attrs["state"] = "absent"
		text += " no rule to a backend"
	case !present:
		attrs["state"] = "absent"
		text += " no virtual server"
	case backends == "":
		text += " no real server"
	default:
		text += ": " + strings.ReplaceAll(backends, ",", ", ")
	}
	return reports.Event{At: at, Kind: reports.EventTable, Node: n.name, Object: s.Address.String(), Text: text, Attrs: attrs}
}
