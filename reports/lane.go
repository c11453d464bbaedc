package reports

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// protocolLong is the word for lanes whose connections stay open: their attempts are no new flows.
const protocolLong = "tcp-long"

// lane is a declared stream of attempts with everything that is known of it.
type lane struct {
	id                                     uint16
	name, client, target, protocol, policy string
	address                                netip.AddrPort // the target, when it is an address and a port
	rate                                   float64        // attempts per second
	gap                                    time.Duration  // time between two intended starts
	deadline                               time.Duration  // dial and reply deadlines together
	service                                string         // when the declaration says so
	control, local                         bool
	partial                                bool                        // the scenario ends it before the run is over
	role, beside                           string                      // of a control lane that does not prove the detector
	pod                                    string                      // whose own address it goes to; empty for other roles
	over                                   string                      // the node that all attempts go over; empty when a balancer chooses
	connections                            int                         // that it keeps open; 0 when it does not say
	fleet                                  worker                      // whose lane it is; of no name for lanes of this machine
	records                                []record                    // ordered by actual start, then number
	attempts                               int                         // in records
	folded                                 folded                      // what records has of buckets
	connect                                time.Duration               // median time to connect of good attempts; to the answer for datagrams
	begin, end                             time.Duration               // first intended start; last intended start and one gap
	declared                               time.Duration               // when its first attempt was due
	flows                                  map[netip.AddrPort]keptFlow // of an http-reuse lane
	unlogged                               int                         // answered, but not in the log of the balancer that chose the node
	outages                                []*outage                   // ordered by start
}

// record is one attempt, or a bucket's attempts on one path to one backend, in 40 bytes because a report keeps millions of them. Lateness and connect time saturate at
// 4.29 s, which is beyond everything that they are used for.
type record struct {
	intended    time.Duration
	late        uint32 // ns
	connect     uint32 // ns, for datagrams to the answer; 0 when it was never established, or only after a retransmission
	total       uint32 // µs
	seq         uint32
	n           uint32 // how many attempts it is; a bucket's are good, and their numbers and times stand in lane.folded
	backend     uint32 // index of analysis.backends; 0 when none answered
	epoch       int32  // index of the balancer's table that applied; -1 when none did
	node        uint16 // index of analysis.nodes: the node of the path
	class       Class
	terminating bool // the backend said that it was shutting down
}

func (r *record) start() time.Duration { return r.intended + time.Duration(r.late) }

// bucket reports whether it is of a bucket, whose numbers and times stand elsewhere.
func (r *record) bucket() bool { return r.seq == ofBucket }

func (r *record) failed() bool { return r.class != OK && r.class != Probe }

func saturate(d time.Duration) uint32 {
	return uint32(min(max(d, 0), math.MaxUint32))
}

// laneOf reads the declaration of a lane; what cannot be read is told, because no verdict may rest on a guess.
func laneOf(e Event) (*lane, error) {
	a := e.Attrs
	id, err := strconv.ParseUint(a["id"], 10, 16)
	if err != nil {
		return nil, fmt.Errorf("a lane with id %q: %w", a["id"], err)
	}
	l := &lane{id: uint16(id), name: a["name"], client: a["client"], target: a["target"], protocol: a["protocol"],
		policy: a["policy"], service: a["service"], control: a["control"] == "true", local: a["local"] == "true",
		partial: a["partial"] == "true", role: a["role"], beside: a["beside"], pod: a["pod"], over: a["node"], declared: e.At}
	l.name = cmp.Or(l.name, "lane-"+a["id"])
	if l.rate, err = strconv.ParseFloat(a["rate"], 64); err != nil || !(l.rate >= 1e-6 && l.rate <= 1e6) {
		return nil, fmt.Errorf("lane %s declares the rate %q; from 0.000001 to 1000000 attempts per second are possible", l.name, a["rate"])
	}
	l.gap = time.Duration(float64(time.Second) / l.rate)
	for _, key := range [...]string{"dialMs", "replyMs"} {
		ms, err := strconv.ParseFloat(cmp.Or(a[key], "0"), 64)
		if err != nil {
			return nil, fmt.Errorf("lane %s declares %s=%q: %w", l.name, key, a[key], err)
		}
		l.deadline += time.Duration(ms * float64(time.Millisecond))
	}
	if err := l.fleet.declare(a); err != nil {
		return nil, fmt.Errorf("lane %s: %w", l.name, err)
	}
	if l.connections, err = strconv.Atoi(cmp.Or(a["connections"], "0")); err != nil {
		return nil, fmt.Errorf("lane %s declares connections=%q: %w", l.name, a["connections"], err)
	}
	if address, err := netip.ParseAddrPort(l.target); err == nil {
		l.address = netip.AddrPortFrom(address.Addr().Unmap(), address.Port())
	}
	return l, nil
}

// frontend is the balancer's table that the lane's attempts go through: none when they go past it.
func (l *lane) frontend() frontend {
	if l.over != "" {
		return frontend{}
	}
	return frontend{l.address, l.datagrams()}
}

// datagrams reports whether the lane speaks UDP, which has no handshake.
func (l *lane) datagrams() bool { return strings.HasPrefix(l.protocol, "udp") }

// opens reports whether each attempt of the lane is a connection of its own.
func (l *lane) opens() bool { return l.protocol == "tcp-new" }

// settle orders the records and computes what depends on all of them.
func (l *lane) settle() {
	byStart := func(a, b record) int { return cmp.Or(cmp.Compare(a.start(), b.start()), cmp.Compare(a.seq, b.seq)) }
	if !slices.IsSortedFunc(l.records, byStart) {
		slices.SortFunc(l.records, byStart)
	}
	connects := Bins{}
	connects.merge(l.folded.connect)
	l.attempts = 0
	for i := range l.records {
		r := &l.records[i]
		l.attempts += int(r.n)
		if i == 0 {
			l.begin = min(r.intended, r.start())
		}
		l.begin = min(l.begin, r.intended)
		l.end = max(l.end, r.intended+l.gap, r.start()+time.Duration(r.connect))
		if r.class == OK && r.connect > 0 {
			connects.add(time.Duration(r.connect), 1)
		}
	}
	l.end = max(l.end, l.folded.to+l.gap*time.Duration(min(1, l.folded.attempts)))
	// Of bins, so that a thinned record has the same: bounds of outages rest on it.
	l.connect = quantileOf(connects.append(nil), 0.5)
}

// reach is how long after its start the first packet of an attempt had certainly reached the node.
func (l *lane) reach(r *record) time.Duration {
	if r.connect > 0 {
		return time.Duration(r.connect)
	}
	return l.connect
}

// lost counts the numbers missing from the lane's sequence and those that stand in it more than once. What a stated gap has
// is missing with notice, and counted apart.
func (l *lane) lost() (missing, stated, twice int) {
	spans := slices.Clone(l.folded.spans)
	for i := range l.records {
		if r := &l.records[i]; !r.bucket() {
			spans = addSpan(spans, Span{uint64(r.seq), 1})
		}
	}
	slices.SortFunc(spans, func(a, b Span) int { return cmp.Compare(a.First, b.First) })
	var next uint64
	for _, s := range spans {
		if s.First > next {
			known := l.fleet.gapBefore(next, s.First)
			missing, stated = missing+int(s.First-next)-known, stated+known
		}
		twice += int(min(s.First+s.Count, max(next, s.First)) - s.First)
		next = max(next, s.First+s.Count)
	}
	return missing, stated, twice
}

// quantile returns the q-quantile (0 to 1) of ordered values: the smallest value with at least that share at or below it.
func quantile[T any](ordered []T, q float64) T {
	var none T
	if len(ordered) == 0 {
		return none
	}
	at := int(math.Ceil(q*float64(len(ordered)))) - 1
	return ordered[min(max(at, 0), len(ordered)-1)]
}

// recordAt is the number of the first record that started at or after an instant.
func (l *lane) recordAt(at time.Duration) int {
	i, _ := slices.BinarySearchFunc(l.records, at, func(r record, t time.Duration) int { return cmp.Compare(r.start(), t) })
	return i
}
