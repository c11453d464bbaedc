package probes

import (
	"encoding/binary"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/hitless/hitless/record"
)

// FreshFor is how long a fresh lane keeps away from a five-tuple that was used: longer than conntrack's 120 s for a
// connection in TIME_WAIT, the longest of the windows in which a second use means something else to a proxy than a
// first one (IPVS conn_reuse_mode, kernel doc ipvs-sysctl.rst).
const FreshFor = 130 * time.Second

// Source ports are walked within the kernel's default ephemeral range, where nothing listens. Their number is the
// largest prime that fits, see walk.
const (
	firstPort = 32768
	portCount = 28229
)

// maxAddresses bounds how much of a wide (IPv6) prefix is walked; 2^20 addresses last 68 days at 5,000/s.
const maxAddresses = 1 << 20

// walk visits every (address, port) of a prefix before it visits any a second time. Address and port both change with
// every step, by steps that are coprime to their numbers; since the number of ports is a prime that does not divide the
// number of addresses, the pairs repeat only after all combinations (Chinese remainder theorem). It needs no memory of
// what was used, and is a function of seed and prefix alone.
//
// The kernel's own choice would not do: it begins anew every 10 s at a random port (EPHEMERAL_PORT_SHUFFLE_PERIOD), and so
// comes back to one that it gave 20 s ago, whose flow a balancer may still keep on a node that is out. Binding a port of one's
// own also avoids the cliff of connect(2), which searches half of the ephemeral range linearly once the other half is in
// TIME_WAIT.
type walk struct {
	prefix                netip.Prefix
	base                  netip.Addr // address number 0
	addresses             uint64
	address, port         uint64 // where the walk stands
	stepAddress, stepPort uint64

	drawn   uint64 // how many tuples were handed out
	block   uint64 // draws for which one time is kept
	started []time.Duration
}

// ageBlocks is how finely a walk remembers when it used a tuple: to this fraction of its length.
const ageBlocks = 4096

func newWalk(prefix netip.Prefix, seed int64) *walk {
	prefix = prefix.Masked()
	w := &walk{prefix: prefix, base: prefix.Addr(), addresses: 1}
	if host := prefix.Addr().BitLen() - prefix.Bits(); host > 0 {
		w.addresses = min(uint64(1)<<min(host, 62), maxAddresses)
	}
	if prefix.Addr().Is4() && w.addresses > 2 {
		w.base = w.base.Next() // network and broadcast addresses may not be bound when the prefix is an interface's own
		w.addresses -= 2
	}
	if w.addresses%portCount == 0 {
		w.addresses--
	}
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(prefix.String())) // never fails (hash.Hash)
	r := rand.New(rand.NewPCG(uint64(seed), sum.Sum64()))
	w.address, w.port = r.Uint64N(w.addresses), r.Uint64N(portCount)
	w.stepPort = 1 + r.Uint64N(portCount-1)
	w.stepAddress = 1 + r.Uint64N(w.addresses)
	for gcd(w.stepAddress, w.addresses) != 1 {
		w.stepAddress++
	}
	w.block = (w.length() + ageBlocks - 1) / ageBlocks
	return w
}

// length is the number of tuples after which the walk repeats.
func (w *walk) length() uint64 { return w.addresses * portCount }

// age returns how long ago the tuple that next would return was used: 0 when never, else at least the true age less
// 1/ageBlocks of the walk's duration, and never more than the true age.
func (w *walk) age(now time.Duration) time.Duration {
	if w.drawn < w.length() {
		return 0
	}
	// The tuple was drawn within this block, so at the latest when the next block began.
	block := (w.drawn - w.length()) / w.block
	return max(1, now-w.started[(block+1)%w.ringSize()])
}

// next returns the next tuple of the walk and notes that it is used now.
func (w *walk) next(now time.Duration) netip.AddrPort {
	if w.drawn%w.block == 0 {
		w.recordBlock(w.drawn/w.block, now)
	}
	w.drawn++
	tuple := netip.AddrPortFrom(nthAddress(w.base, w.address), uint16(firstPort+w.port))
	w.address = (w.address + w.stepAddress) % w.addresses
	w.port = (w.port + w.stepPort) % portCount
	return tuple
}

// note keeps when a block of draws began, in a ring that is just longer than one walk.
func (w *walk) recordBlock(block uint64, now time.Duration) {
	if uint64(len(w.started)) < w.ringSize() {
		w.started = append(w.started, now)
	} else {
		w.started[block%w.ringSize()] = now
	}
}

func (w *walk) ringSize() uint64 { return w.length()/w.block + 2 }

func nthAddress(base netip.Addr, n uint64) netip.Addr {
	if base.Is4() {
		b := base.As4()
		binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])+uint32(n))
		return netip.AddrFrom4(b)
	}
	b := base.As16()
	binary.BigEndian.PutUint64(b[8:], binary.BigEndian.Uint64(b[8:])+n)
	return netip.AddrFrom16(b)
}

func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// sources is where lanes take their ends of five-tuples from: a prefix; or, where they have none, the ports of this network
// namespace, which TCP and UDP have of their own, with the unspecified address: the kernel then chooses the address and keeps
// the port.
type sourceRange struct {
	prefix netip.Prefix
	udp    bool
}

func (l Lane) sourceRange() sourceRange {
	if l.SourcePrefix.IsValid() {
		return sourceRange{prefix: l.SourcePrefix.Masked()}
	}
	unspecified := netip.IPv6Unspecified()
	if l.Target.Addr().Is4() {
		unspecified = netip.IPv4Unspecified()
	}
	return sourceRange{netip.PrefixFrom(unspecified, unspecified.BitLen()), l.overUDP()}
}

// shared reports whether other programs take ports there as well.
func (s sourceRange) shared() bool { return s.prefix.Addr().IsUnspecified() }

// source gives each attempt of a lane its end of the five-tuple.
type source interface {
	// next returns the address and port to bind (an unspecified address: the kernel chooses it and keeps the port), and how
	// long ago the tuple was used before; ok is false when there is none that the policy allows.
	next(k uint64, now time.Duration) (tuple netip.AddrPort, age time.Duration, ok bool)
}

// freshSource draws from a walk that all fresh lanes with the same prefix share, so that they do not meet.
type freshSource struct{ walk *walk }

func (s freshSource) next(_ uint64, now time.Duration) (netip.AddrPort, time.Duration, bool) {
	age := s.walk.age(now)
	if age != 0 && age < FreshFor {
		return netip.AddrPort{}, age, false
	}
	return s.walk.next(now), age, true
}

// reuseSource goes round a fixed list of tuples, as long as the lane's rate needs to come back after the interval.
type reuseSource struct {
	tuples []netip.AddrPort
	used   []time.Duration // when each was last used; -1 is never
}

// newReuseSource takes its tuples from the walk of the prefix, so that fresh lanes do not use them before the walk begins
// again; for a prefix as small as that, give reuse lanes one of their own.
func newReuseSource(w *walk, l Lane, interval, now time.Duration) *reuseSource {
	// A hair less than the product: 0.1 s x 30/s are 3 tuples, not 4, though the product is 3.0000000000000004.
	n := max(1, int(math.Ceil(interval.Seconds()*l.Rate-1e-9)))
	s := &reuseSource{tuples: make([]netip.AddrPort, n), used: make([]time.Duration, n)}
	for i := range s.tuples {
		s.tuples[i], s.used[i] = w.next(now), -1
	}
	return s
}

func (s *reuseSource) next(k uint64, now time.Duration) (netip.AddrPort, time.Duration, bool) {
	i := k % uint64(len(s.tuples))
	var age time.Duration
	if s.used[i] >= 0 {
		age = now - s.used[i]
	}
	s.used[i] = now
	return s.tuples[i], age, true
}

// evenSource draws from a walk, and skips tuples until one has the wanted hash. The attempts want the nodes' shares of the
// hash's range one after the other, so that each node has its turn after as many attempts as there are nodes. Within a
// share they move by the golden ratio from round to round: when some of the nodes are out of the balancer, the bounds between
// the larger shares of the others lie anywhere, and no node may be passed over again and again.
type spreadSource struct {
	fresh      freshSource
	target     netip.AddrPort
	seed       uint32
	nodes      int
	sameNodeAs netip.AddrPort // when valid: go the way of this one, whatever the attempt's number
}

const golden = 0x9e3779b97f4a7c15 // 2^64 divided by the golden ratio

// spreadTries bounds the search, in multiples of the tuples that it takes on average; one in 10^13 needs more, and then takes
// what comes.
const spreadTries = 32

// spreadWithin is how far a hash may be from the wanted one: 1/64 of the range, so that 32 tuples are drawn for one on
// average, or with many nodes a quarter of a share.
func spreadWithin(nodes int) uint32 { return uint32(min(1<<26, 1<<32/(4*uint64(nodes)))) }

func (s spreadSource) next(k uint64, now time.Duration) (tuple netip.AddrPort, age time.Duration, ok bool) {
	n := uint64(s.nodes)
	share := 1 << 32 / n
	moved := share / 2 * (k / n * golden >> 32) >> 32 // in the middle half: the quarters beside it are what a hash may be off
	want, within := uint32(k%n*share+share/4+moved), spreadWithin(s.nodes)
	if s.sameNodeAs.IsValid() {
		want = record.FlowHash(s.sameNodeAs, s.target, s.seed)
	}
	for range spreadTries * int(expectedDraws(s.nodes)) {
		tuple, age, ok = s.fresh.next(k, now)
		// The sum wraps, as the range does.
		if !ok || record.FlowHash(tuple, s.target, s.seed)-want+within < 2*within {
			break
		}
	}
	return tuple, age, ok
}

// drawn is how many tuples of its walk a lane uses for one attempt, on average.
func (l Lane) drawsPerAttempt() float64 {
	if l.SpreadSeed == 0 {
		return 1
	}
	return expectedDraws(l.SpreadNodes)
}

func expectedDraws(nodes int) float64 { return 1 << 32 / (2 * float64(spreadWithin(nodes))) }
