package main

import (
	"fmt"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hitless/hitless/proxier"
	"github.com/hitless/hitless/proxier/kernel"
)

// The addresses that the lab's load balancer gives the measured Service and the canary.
var (
	web    = netip.MustParseAddr("203.0.113.10")
	web6   = netip.MustParseAddr("2001:db8:203::a") // of a run with IPv6
	canary = netip.MustParseAddr("203.0.113.11")
)

// port is the port of both Services; pods serve UDP on udpPort.
const (
	port    = 80
	udpPort = 8081
)

// faulty is a kernel with injected faults.
type faulty struct {
	kernel.Kernel
	began            time.Duration
	keepTCP, keepUDP bool
	readds           bool
	dead             atomic.Bool // changes nothing
	blind            bool        // does not notice deleted rules
	change           func(kernel.Op) []kernel.Op

	mu      sync.Mutex // each fault has its own goroutine
	flushed map[kernel.Key]window
}

// window is when a fault was injected or removed: not before asked, and not after done.
type window struct{ asked, done time.Duration }

// monotonic returns the kernel's monotonic clock, which all programs share.
func monotonic() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // cannot fail for this clock
	return time.Duration(ts.Nano())
}

// log logs a fault: its begin since the start of the program, and its shortest and longest duration, in nanoseconds.
func (k *faulty) log(kind string, protocol kernel.Protocol, begin, end window) {
	fmt.Fprintf(os.Stderr, "fault %s %s since=%d least=%d most=%d\n", kind, protocol, (begin.asked - k.began).Nanoseconds(),
		(end.asked - begin.done).Nanoseconds(), (end.done - begin.asked).Nanoseconds())
}

func (k *faulty) Servers() ([]kernel.Server, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.Kernel.Servers()
}

func (k *faulty) Server(key kernel.Key) (kernel.Server, bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.Kernel.Server(key)
}

func (k *faulty) Addresses() (kernel.Addresses, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.Kernel.Addresses()
}

func (k *faulty) Elements() ([]kernel.Element, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.Kernel.Elements()
}

// Apply reports success without applying the operations that the faults suppress.
func (k *faulty) Apply(op kernel.Op) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.suppressed(op) {
		return nil
	}
	if o, is := op.(kernel.SetWeight); is && k.readds && o.Weight > 0 && o.Key.Addr == web {
		return k.readd(o)
	}
	asked := monotonic()
	err := k.applyChanged(op)
	if add, is := op.(kernel.AddReal); is && err == nil {
		if begin, was := k.flushed[add.Key]; was {
			delete(k.flushed, add.Key)
			k.log("flush", add.Key.Protocol, begin, window{asked, monotonic()})
		}
	}
	return err
}

// applyChanged applies what a fault makes of an operation.
func (k *faulty) applyChanged(op kernel.Op) error {
	if k.change == nil {
		return k.Kernel.Apply(op)
	}
	for _, o := range k.change(op) {
		if err := k.Kernel.Apply(o); err != nil {
			return err
		}
	}
	return nil
}

// Damaged tells of deleted rules as the kernel does.
func (k *faulty) Damaged() <-chan struct{} {
	if inner, notifies := k.Kernel.(kernel.DamageNotifier); notifies && !k.blind {
		return inner.Damaged()
	}
	return nil // never receives
}

// readdAfter is several hundred times kube-proxy's time between the two operations, so that open connections meet it soon.
const readdAfter = 20 * time.Millisecond

// readd deletes and adds a real server, as kube-proxy does instead of changing its weight.
func (k *faulty) readd(o kernel.SetWeight) error {
	if err := k.Kernel.Apply(kernel.DeleteReal{Key: o.Key, Real: o.Real}); err != nil {
		return err
	}
	time.Sleep(readdAfter)
	return k.Kernel.Apply(kernel.AddReal(o))
}

func (k *faulty) suppressed(op kernel.Op) bool {
	if k.dead.Load() {
		return true
	}
	switch o := op.(type) {
	case kernel.DeleteReal:
		return k.keeps(o.Key)
	case kernel.SetWeight:
		return o.Weight == 0 && k.keeps(o.Key)
	case kernel.ForgetFlows:
		return k.keepUDP
	}
	return false
}

func (k *faulty) keeps(key kernel.Key) bool {
	return key.Addr == web && (key.Protocol == kernel.TCP && k.keepTCP || key.Protocol == kernel.UDP && k.keepUDP)
}

// flush deletes the measured Service's virtual servers before the proxier starts, and delays that start.
func (k *faulty) flush(f fault) error {
	k.flushed = map[kernel.Key]window{}
	for _, key := range []kernel.Key{{Addr: web, Protocol: kernel.TCP, Port: port}, {Addr: web, Protocol: kernel.UDP, Port: port},
		{Addr: web6, Protocol: kernel.TCP, Port: port}, {Addr: web6, Protocol: kernel.UDP, Port: port}} {
		switch _, exists, err := k.Kernel.Server(key); {
		case err != nil:
			return fmt.Errorf("looking for %v: %w", key, err)
		case !exists: // it is not in the run's family
			continue
		}
		w := window{asked: monotonic()}
		if err := k.Kernel.Apply(kernel.DeleteVirtual{Key: key}); err != nil {
			return fmt.Errorf("flushing %v: %w", key, err)
		}
		w.done = monotonic()
		k.flushed[key] = w
	}
	time.Sleep(f.lasts)
	return nil
}

// sleepUntil waits until a time since the start of the program.
func (k *faulty) sleepUntil(after time.Duration) { time.Sleep(k.began + after - monotonic()) }

// deadFor applies no changes for a while. Changes of that time are lost, because the engine takes them for applied.
func (k *faulty) deadFor(f fault) {
	k.sleepUntil(f.after)
	k.dead.Store(true)
	time.Sleep(f.lasts)
	k.dead.Store(false)
}

// later injects a fault at its time.
func (i *injection) later(f fault) error {
	go i.once(f)
	return nil
}

// once injects a fault at its time and removes it again, for each protocol.
func (k *faulty) once(f fault) {
	k.sleepUntil(f.after)
	begun := map[kernel.Protocol]window{}
	undo := map[kernel.Protocol][]kernel.Op{}
	protocols := []kernel.Protocol{kernel.TCP, kernel.UDP}
	for _, p := range protocols {
		do, back, err := k.operations(f.kind, kernel.Key{Addr: web, Protocol: p, Port: port})
		if err == nil {
			begun[p], err = k.applyAll(do)
		}
		if err != nil {
			k.logError(f, p, err)
			return
		}
		undo[p] = back
	}
	time.Sleep(f.lasts)
	for _, p := range protocols {
		end, err := k.applyAll(undo[p])
		if err != nil {
			k.logError(f, p, err)
			return
		}
		k.log(f.kind, p, begun[p], end)
	}
}

// logError logs a failed fault; its line makes the spec fail.
func (k *faulty) logError(f fault, p kernel.Protocol, err error) {
	fmt.Fprintf(os.Stderr, "faulty: %s of %s: %v\n", f.kind, p, err)
}

func (k *faulty) applyAll(ops []kernel.Op) (window, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	w := window{asked: monotonic()}
	for _, op := range ops {
		if err := k.Kernel.Apply(op); err != nil {
			return w, fmt.Errorf("%v: %w", op, err)
		}
	}
	w.done = monotonic()
	return w, nil
}

// operations returns the operations that inject and remove a fault.
func (k *faulty) operations(kind string, key kernel.Key) (do, undo []kernel.Op, err error) {
	server, found, err := k.Server(key)
	if err != nil || !found || len(server.Reals) == 0 {
		return nil, nil, fmt.Errorf("no virtual server %v with a real server: %w", key, err)
	}
	switch kind {
	case dropNew:
		drop := []kernel.Element{{Set: kernel.Drop, Key: key}}
		return []kernel.Op{kernel.ChangeSets{Add: drop}}, []kernel.Op{kernel.ChangeSets{Remove: drop}}, nil
	case wrongBackend:
		other, found, err := k.Server(kernel.Key{Addr: canary, Protocol: kernel.TCP, Port: port})
		if err != nil || !found || len(other.Reals) == 0 {
			return nil, nil, fmt.Errorf("no real server of %s: %w", canary, err)
		}
		wrong := other.Reals[0].Addr
		if key.Protocol == kernel.UDP {
			wrong = netip.AddrPortFrom(wrong.Addr(), udpPort)
		}
		// With policy Local there is no masquerading, and replies of a pod on another node would take another path.
		masquerade := []kernel.Element{{Set: kernel.Masquerade, Key: key}}
		do = []kernel.Op{kernel.ChangeSets{Add: masquerade}, kernel.AddReal{Key: key, Real: wrong, Weight: 1}}
		undo = []kernel.Op{kernel.DeleteReal{Key: key, Real: wrong}, kernel.ChangeSets{Remove: masquerade}}
	}
	for _, r := range server.Reals {
		do = append(do, kernel.DeleteReal{Key: key, Real: r.Addr})
		undo = append([]kernel.Op{kernel.AddReal{Key: key, Real: r.Addr, Weight: r.Weight}}, undo...)
	}
	return do, undo, nil
}

// passing is a health check that still passes for Services whose local endpoints were removed.
type passing struct {
	proxier.HealthChecks
	had map[types.NamespacedName]bool
}

func (l passing) Set(name types.NamespacedName, port uint16, local int) {
	l.had[name] = l.had[name] || local > 0
	if l.had[name] {
		local = max(1, local)
	}
	l.HealthChecks.Set(name, port, local)
}
