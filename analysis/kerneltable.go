package analysis

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hitless/hitless/internal/units"
	"github.com/hitless/hitless/record"
)

// kernelTable is the state of a virtual server in a node's kernel, of IPVS or from nftables rules, as one or more readings found it.
type kernelTable struct {
	from, at time.Duration // last reading with another state, and first reading with this one
	absent   bool
	unread   bool // the table is not read any more; such a state is the last one
	backends record.BackendList
}

// kernelKey identifies a virtual server.
type kernelKey struct {
	table record.Table
	node  string
	record.Frontend
}

func kernelTableOf(e record.Event, body record.KernelTable) (kernelKey, kernelTable) {
	key := kernelKey{cmp.Or(body.Table, record.TableIPVS), e.Node, record.NewFrontend(body.Address, body.Port, body.Protocol)}
	t := kernelTable{from: e.At, at: e.At, absent: body.State == record.TableAbsent, backends: body.Backends}
	if body.From != nil {
		t.from = min(max(*body.From, 0), e.At)
	}
	return key, t
}

// weight is the weight of a real server; -1 when the table lacks it.
func (t kernelTable) weight(address netip.AddrPort) int {
	for _, s := range t.backends {
		if s.Address == address {
			return s.Weight
		}
	}
	return -1
}

// takes reports whether any real server gets new connections.
func (t kernelTable) takes() bool {
	return slices.ContainsFunc(t.backends, func(s record.Backend) bool { return s.Weight > 0 })
}

// kernelTables are the states of one virtual server on one node, in order of time.
type kernelTables []kernelTable

// inForce is the number of the state at an instant, -1 before the first reading.
func (ts kernelTables) inForce(at time.Duration) int {
	i, _ := slices.BinarySearchFunc(ts, at, func(t kernelTable, at time.Duration) int {
		if t.at <= at {
			return -1
		}
		return 1
	})
	return i - 1
}

// seenAround reports whether a reading found state i during an outage or shortly before. Otherwise the state is unknown, because in a
// soak days lie between two readings.
func (ts kernelTables) seenAround(i int, o *Outage) bool {
	last, _, ended := ts.until(i)
	return !ended || max(last, ts[i].at) >= o.from-causeWindow
}

// until bounds when state i ended. ended is false if it did not, as far as the table was read.
func (ts kernelTables) until(i int) (lower, upper time.Duration, ended bool) {
	if i+1 >= len(ts) || ts[i+1].unread {
		return 0, 0, false
	}
	return ts[i+1].from, ts[i+1].at, true
}

// kernelOf returns the states of the virtual server that an outage's attempts met on their node; nil if they met none, or if the table was not
// read to the outage's end.
func (a *Analysis) kernelOf(o *Outage) kernelTables {
	mode := a.proxyMode(o)
	if a.Paths.Of(o.Lane.Frontend()).Logged() || modeNames[mode] == "" {
		return nil // such a load balancer uses NodePorts, and other proxies have other tables
	}
	table := record.TableNFTables
	switch mode {
	case modeIPVS:
		table = record.TableIPVS
	case modeBPF:
		table = record.TableBPF
	}
	key := kernelKey{table, a.Nodes[o.node], o.Lane.Frontend()}
	end, is := a.unread[key]
	switch {
	case is && end < o.to:
		return nil
	case is && len(a.kernel[key]) > 0:
		return append(slices.Clone(a.kernel[key]), kernelTable{from: end, at: end, unread: true})
	}
	return a.kernel[key]
}

// lastRead is when the table was not read any more; end if that was never.
func (ts kernelTables) lastRead(end time.Duration) time.Duration {
	if n := len(ts); n > 0 && ts[n-1].unread {
		return ts[n-1].at
	}
	return end
}

// modeChange is the mode of a node's proxy from an instant on.
type modeChange struct {
	at   time.Duration
	mode string
}

// addMode stores the mode of a kube-proxy. Only kube-proxies change their mode during a run.
func (a *Analysis) addMode(e record.Event) {
	if !strings.HasPrefix(e.Object, "kube-proxy@") {
		return
	}
	mode, changes := e.Object[strings.LastIndex(e.Object, "/")+1:], a.modes[e.Node]
	if n := len(changes); n == 0 || changes[n-1].mode != mode {
		a.modes[e.Node] = append(changes, modeChange{e.At, mode})
	}
}

// proxyMode is the mode of the proxy that an outage's node had when it began.
func (a *Analysis) proxyMode(o *Outage) string {
	for _, c := range slices.Backward(a.modes[a.Nodes[o.node]]) {
		if c.at <= o.from {
			return c.mode
		}
	}
	return a.Run.Subject.Mode
}

// modeNames are the names of the modes whose tables are read. Rules of iptables are in nftables too.
var modeNames = map[string]string{modeIPVS: "IPVS", modeNFTables: "nftables", modeIPTables: "iptables", modeBPF: "the BPF maps"}

const (
	modeIPVS     = "ipvs"
	modeNFTables = "nftables"
	modeIPTables = "iptables"
	modeBPF      = "ebpf"
)

// keptServer is a real server that got new connections after its process had exited.
type keptServer struct {
	address      netip.AddrPort
	exited       time.Duration
	lower, upper time.Duration // bounds of the time that the table kept it
	still        bool          // the last reading still had it
	unread       bool          // the table was not read to the end of the record
}

// keptAfterExit finds the real server that a node's table kept after the exit of its pod: the last pod that exited before the outage
// ended.
func (a *Analysis) keptAfterExit(o *Outage) (keptServer, bool) {
	ts := a.kernelOf(o)
	var found keptServer
	ok := false
	for i := max(0, ts.inForce(o.from)-1); i < len(ts) && ts[i].from <= o.to; i++ {
		for _, s := range ts[i].backends {
			pod := a.pods.podAt(s.Address.Addr().String(), o.to)
			exited, has := a.pods.exitOf(s.Address.Addr(), pod, o.to)
			if s.Weight <= 0 || !has || !o.gave(s.Address) || (ok && exited <= found.exited) {
				continue
			}
			k := i
			for k+1 < len(ts) && ts[k+1].weight(s.Address) > 0 {
				k++
			}
			last, gone, ended := ts.until(k)
			if ended && (gone < o.from || last <= exited || !ts.seenAround(k, o)) {
				continue // the table may have dropped it before the first failure
			}
			read := ts.lastRead(a.End)
			if !ended {
				last, gone = read, read
			}
			found, ok = keptServer{s.Address, exited, max(0, last-exited), gone - exited, !ended, read < a.End}, true
		}
	}
	return found, ok
}

// ruleText describes how the node's kernel treated the connections of an outage; empty when its table explains nothing. since is the begin of the
// state of the table, where a reading showed it.
func (a *Analysis) ruleText(o *Outage) (text string, since time.Duration, known bool) {
	node, mode := a.Nodes[o.node], a.proxyMode(o)
	if k, ok := a.keptAfterExit(o); ok {
		long := "for " + units.Range(units.MillisDown(k.lower), units.MillisUp(k.upper))
		switch {
		case k.still && k.unread:
			long = "until its table was not read any more"
		case k.still:
			long = "until the end of the record"
		}
		return fmt.Sprintf("%s kept %s in %s %s after its process exited; %s", node, k.address.Addr(), modeNames[mode], long, o.fateText()), k.exited, true
	}
	ts := a.kernelOf(o)
	i := ts.inForce(max(o.from, o.struck))
	if k := i + 1; i >= 0 && ts[i].takes() && k < len(ts) && ts[k].at <= o.to && !ts[k].takes() && !ts[k].unread {
		i = k // the reading that the failures caused found it so
	}
	if i < 0 || ts[i].unread || ts[i].takes() || !ts.seenAround(i, o) {
		return "", 0, false
	}
	what := "no backend accepting new connections to "
	if ts[i].absent && mode == modeIPVS {
		what = "no virtual server for "
	} else if ts[i].absent && mode == modeBPF {
		what = "no entry for "
	} else if ts[i].absent {
		what = "no rule to a backend for "
	}
	text = fmt.Sprintf("%s had %s%s in %s", node, what, o.Lane.Address, modeNames[mode])
	if lower, upper, ended := ts.until(i); ended {
		from := ts[i].from
		if o.Lane.Opens() { // connections over the node before and after had a real server
			from = max(from, o.before)
			if !o.open && o.left == 0 {
				upper = min(upper, o.after)
			}
		}
		text += " for " + units.Range(units.MillisDown(max(0, lower-ts[i].at)), units.MillisUp(max(upper-from, lower-ts[i].at)))
	}
	return text + "; " + o.fateText(), ts[i].at, true
}

// fateText describes the outcome of an outage's attempts, such as 31 new connections were refused.
func (o *Outage) fateText() string {
	noun := "attempt"
	if o.Lane.Opens() {
		noun = "new connection"
	}
	var words []string
	for _, c := range record.Classes() {
		n := o.classes[c]
		if n == 0 {
			continue
		}
		was := "were"
		if n == 1 {
			was = "was"
		}
		switch c {
		case record.Refused, record.Rejected, record.Delayed, record.Reset, record.Closed, record.Stalled, record.Misrouted:
			words = append(words, fmt.Sprintf("%s %s %s", units.Plural(n, noun), was, c))
		default:
			words = append(words, fmt.Sprintf("%s ended as %s", units.Plural(n, noun), c))
		}
	}
	return strings.Join(words, ", ")
}

// KernelView is a virtual server before, at and after an outage.
type KernelView struct {
	Caption string
	Backend string // heading of the column of backends
	Columns []string
	Rows    []kernelRow
}

type kernelRow struct {
	Address, Pod string
	Cells        []string
}

// KernelView returns the table that an outage's attempts met; nil when it was not read.
func (a *Analysis) KernelView(o *Outage) *KernelView {
	ts := a.kernelOf(o)
	if len(ts) == 0 {
		return nil
	}
	mode := a.proxyMode(o)
	v := &KernelView{Caption: fmt.Sprintf("Virtual server %s in IPVS of %s", o.Lane.Address, a.Nodes[o.node]), Backend: "real server"}
	switch mode {
	case modeIPVS:
	case modeBPF:
		v.Caption, v.Backend = fmt.Sprintf("Backends of %s in the BPF maps of %s", o.Lane.Address, a.Nodes[o.node]), "backend"
	default:
		v.Caption, v.Backend = fmt.Sprintf("Backends of %s by the rules of %s on %s", o.Lane.Address, modeNames[mode], a.Nodes[o.node]), "backend"
	}
	first := max(o.from, o.struck)
	var shown []int
	for _, moment := range [...]struct {
		name string
		at   time.Duration
	}{{"before", o.before}, {"first failure", first}, {"last failure", max(first, o.to)}, {"2 s later", o.to + EvidenceSpan}} {
		v.Columns = append(v.Columns, moment.name+", "+units.At(units.Seconds(moment.at)))
		shown = append(shown, ts.inForce(moment.at))
	}
	var all []netip.AddrPort
	for _, i := range shown {
		if i >= 0 {
			for _, s := range ts[i].backends {
				if !slices.Contains(all, s.Address) {
					all = append(all, s.Address)
				}
			}
		}
	}
	slices.SortFunc(all, netip.AddrPort.Compare)
	if len(all) == 0 {
		all = []netip.AddrPort{{}}
	}
	for _, address := range all {
		row := kernelRow{Address: "none"}
		if address.IsValid() {
			row.Address = address.String()
			row.Pod = a.podText(address.Addr(), a.pods.podAt(address.Addr().String(), o.to), o.to)
		}
		for _, i := range shown {
			row.Cells = append(row.Cells, ts.cell(i, address, mode))
		}
		v.Rows = append(v.Rows, row)
	}
	return v
}

func (ts kernelTables) cell(i int, address netip.AddrPort, mode string) string {
	switch {
	case i < 0:
		return "not looked at"
	case ts[i].unread:
		return "not read any more"
	case ts[i].absent && mode == modeIPVS:
		return "no virtual server"
	case ts[i].absent && mode == modeBPF:
		return "no entry"
	case ts[i].absent:
		return "no rule"
	}
	switch w := ts[i].weight(address); {
	case w < 0:
		return "–"
	case mode == modeBPF && w == 0:
		return "terminating: no new connections"
	case mode == modeBPF:
		return "active"
	case mode != modeIPVS:
		return "in the rules"
	case w == 0:
		return "weight 0: no new connections"
	default:
		return "weight " + strconv.Itoa(w)
	}
}

// podText names the pod at an address, with the time of its exit if it had exited.
func (a *Analysis) podText(address netip.Addr, pod string, by time.Duration) string {
	text := cmp.Or(pod, "no known pod")
	if at, exited := a.pods.exitOf(address, pod, by); exited {
		text += ", exited at " + units.At(units.Seconds(at))
	}
	return text
}
