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

// FreshFor is the time for which a fresh lane does not reuse a five-tuple: longer than conntrack's 120 s for a
// connection in TIME_WAIT, the longest time in which a proxy treats a second use differently (IPVS conn_reuse_mode,
// kernel doc ipvs-sysctl.rst).
const FreshFor = 130 * time.Second

// Source ports are in the kernel's default ephemeral range, where no program listens. Their number is the largest prime
// that fits, see walk.
const (
	firstPort = 32768
	portCount = 28229
)

// maxAddresses limits the part of a large (IPv6) prefix that is used; 2^20 addresses last 68 days at 5,000/s.
const maxAddresses = 1 << 20

// walk iterates over every (address, port) of a prefix before it repeats one. Address and port both change with every
// step, by steps that are coprime to their numbers. The number of ports is a prime that does not divide the number of
// addresses, so the pairs repeat only after all combinations (Chinese remainder theorem). It stores no used tuples and
// depends only on seed and prefix.
//
// The kernel's own choice is not suitable: it restarts at a random port every 10 s (EPHEMERAL_PORT_SHUFFLE_PERIOD) and
// may return a port of 20 s ago, whose flow a load balancer may still send to a removed node. Explicit ports also avoid
// the slow path of connect(2), which searches half of the ephemeral range linearly once the other half is in TIME_WAIT.
type walk struct {
	prefix                netip.Prefix
	base                  netip.Addr // address number 0
	addresses             uint64
	address, port         uint64 // current position
	stepAddress, stepPort uint64

	drawn   uint64 // number of tuples so far
	block   uint64 // number of draws that share one recorded time
	started []time.Duration
}

// ageBlocks is the number of recorded times per walk, the resolution of age.
const ageBlocks = 4096

func newWalk(prefix netip.Prefix, seed int64) *walk {
	prefix = prefix.Masked()
	w := &walk{prefix: prefix, base: prefix.Addr(), addresses: 1}
	if host := prefix.Addr().BitLen() - prefix.Bits(); host > 0 {
		w.addresses = min(uint64(1)<<min(host, 62), maxAddresses)
	}
	if prefix.Addr().Is4() && w.addresses > 2 {
		w.base = w.base.Next() // network and broadcast addresses of an interface's prefix cannot be bound
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

// length returns the number of tuples after which the walk repeats.
func (w *walk) length() uint64 { return w.addresses * portCount }

// age returns the time since the tuple that next would return was used, and 0 if never. The result is at most the true
// age, and at least that less 1/ageBlocks of the walk's duration.
func (w *walk) age(now time.Duration) time.Duration {
	if w.drawn < w.length() {
		return 0
	}
	// The tuple was drawn in this block, at the latest when the next block began.
	block := (w.drawn - w.length()) / w.block
	return max(1, now-w.started[(block+1)%w.ringSize()])
}

// next returns the next tuple and records its use.
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

// skip goes on as if n tuples had been drawn, except that their ages are unknown.
func (w *walk) skip(n uint64) {
	w.address = (w.address + n%w.addresses*w.stepAddress) % w.addresses
	w.port = (w.port + n%portCount*w.stepPort) % portCount
}

// recordBlock records the start of a block of draws in a ring that is slightly longer than one walk.
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

// sourceRange is a range of source addresses and ports: a prefix; or, without one, the ports of this network namespace,
// which TCP and UDP have separately, with the unspecified address, so that the kernel chooses the address.
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

// shared reports whether other programs use the same ports.
func (s sourceRange) shared() bool { return s.prefix.Addr().IsUnspecified() }

// source gives each attempt of a lane its end of the five-tuple.
type source interface {
	// next returns the address and port to bind (an unspecified address: the kernel chooses it and keeps the port), and how
	// long ago the tuple was used before; ok is false when there is none that the policy allows.
	next(k uint64, now time.Duration) (tuple netip.AddrPort, age time.Duration, ok bool)
}

// freshSource draws from a walk that all fresh lanes with the same source range share, so that they do not collide.
type freshSource struct{ walk *walk }

func (s freshSource) next(_ uint64, now time.Duration) (netip.AddrPort, time.Duration, bool) {
	age := s.walk.age(now)
	if age != 0 && age < FreshFor {
		return netip.AddrPort{}, age, false
	}
	return s.walk.next(now), age, true
}

// reuseSource repeats a fixed list of tuples that is long enough for the reuse interval at the lane's rate.
type reuseSource struct {
	tuples []netip.AddrPort
	used   []time.Duration // time of the last use of each; -1 for never
}

// newReuseSource draws the tuples from the walk of the prefix, so that fresh lanes do not use them before the walk
// repeats. With a prefix so small that it repeats, reuse lanes need their own.
func newReuseSource(w *walk, l Lane, interval, now time.Duration) *reuseSource {
	// The subtraction compensates rounding: 0.1 s x 30/s are 3 tuples, but the product is 3.0000000000000004.
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

// spreadSource draws from a walk, and skips tuples until one has a hash near the wanted one. Consecutive attempts want
// the nodes' shares of the hash range in turn, so that each node gets one attempt in as many attempts as there are
// nodes. Within a share the wanted hash moves by the golden ratio from round to round: when the load balancer has
// removed some nodes, the larger shares of the others have arbitrary bounds, and no node may be skipped for long.
type spreadSource struct {
	fresh      freshSource
	target     netip.AddrPort
	seed       uint32
	nodes      int
	sameNodeAs netip.AddrPort // if valid: choose a source with the same hash
}

const golden = 0x9e3779b97f4a7c15 // 2^64 divided by the golden ratio

// spreadTries limits the search, as a multiple of the average number of draws; one search in 10^13 needs more and uses
// its last tuple.
const spreadTries = 32

// spreadWithin returns the maximum distance of a hash from the wanted one: 1/64 of the range, so that 32 tuples are
// drawn for one on average, or with many nodes a quarter of a share.
func spreadWithin(nodes int) uint32 { return uint32(min(1<<26, 1<<32/(4*uint64(nodes)))) }

func (s spreadSource) next(k uint64, now time.Duration) (tuple netip.AddrPort, age time.Duration, ok bool) {
	n := uint64(s.nodes)
	share := 1 << 32 / n
	shift := share / 2 * (k / n * golden >> 32) >> 32 // in the middle half of the share, since the hash may be off by a quarter
	want, within := uint32(k%n*share+share/4+shift), spreadWithin(s.nodes)
	if s.sameNodeAs.IsValid() {
		want = record.FlowHash(s.sameNodeAs, s.target, s.seed)
	}
	for range spreadTries * int(expectedDraws(s.nodes)) {
		tuple, age, ok = s.fresh.next(k, now)
		// The sum wraps around, like the range.
		if !ok || record.FlowHash(tuple, s.target, s.seed)-want+within < 2*within {
			break
		}
	}
	return tuple, age, ok
}

// drawsPerAttempt returns the average number of tuples that a lane draws for one attempt.
func (l Lane) drawsPerAttempt() float64 {
	if l.SpreadSeed == 0 {
		return 1
	}
	return expectedDraws(l.SpreadNodes)
}

func expectedDraws(nodes int) float64 { return 1 << 32 / (2 * float64(spreadWithin(nodes))) }
