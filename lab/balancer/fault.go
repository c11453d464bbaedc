package balancer

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"github.com/hitless/hitless/record"
)

// The kinds of fault.
const (
	FaultDrop   = "drop"   // drops the SYN of new connections (UDP: every packet)
	FaultRefuse = "refuse" // answers the SYN of new connections with RST (UDP: ICMP port unreachable)
	FaultReset  = "reset"  // resets TCP connections when the client sends data; new ones open first
)

// Fault is a disturbance that is injected between clients and nodes.
type Fault struct {
	ID       string         // identifies the fault in the record; unique among the active faults
	Kind     string         // drop, refuse or reset
	Target   netip.AddrPort // external address and port
	Protocol string         // tcp (default) or udp
	Source   netip.Prefix   // addresses of the affected clients; zero for all
	Node     string         // node of the affected flows (passthrough only); empty for all
	For      time.Duration  // duration, more than 0
	Lane     string         // the lane that must detect the fault; empty for none
	Control  bool           // the fault proves the detector
}

// faultTable is an nftables table of each family in the balancer's namespace that runs before every other filter.
type faultTable struct {
	cfg    Config
	tables map[record.Family]faultChain

	mu     sync.Mutex
	active map[string]bool
	ended  chan struct{} // closed when the balancer ends
	closed bool
	all    sync.WaitGroup
}

// faultChain has the rules of a family.
type faultChain struct {
	rules *ruleset
	chain *nftables.Chain
}

func newFaultTable(cfg Config) (*faultTable, error) {
	f := &faultTable{cfg: cfg, tables: map[record.Family]faultChain{}, active: map[string]bool{}, ended: make(chan struct{})}
	hook := nftables.ChainHookForward
	if cfg.Kind == KindHAProxy {
		hook = nftables.ChainHookInput // HAProxy terminates client connections here
	}
	for _, family := range familiesOf(cfg.Net) {
		var chain faultChain
		var err error
		chain.rules, err = newRuleset(cfg.Net.Balancer, headers[family].table, "faults", func(c *nftables.Conn, t *nftables.Table) error {
			chain.chain = c.AddChain(&nftables.Chain{Table: t, Name: "faults", Type: nftables.ChainTypeFilter, Hooknum: hook,
				Priority: nftables.ChainPriorityRef(*nftables.ChainPriorityFilter - 10)})
			return nil
		})
		if err != nil {
			return nil, errors.Join(err, f.closeTables())
		}
		f.tables[family] = chain
	}
	return f, nil
}

// Inject adds the fault, waits for its duration and removes it. It may be called from several goroutines, until Run
// ends. If ctx or the balancer ends early, Inject removes the fault and returns an error.
//
// Two events are recorded. The begin event has fromNs just before and At just after the rule is added; the end event
// has At just before and untilNs just after the rule is removed. So every packet between the two At times meets the
// fault, and no packet before fromNs or after untilNs does.
func (b *Balancer) Inject(ctx context.Context, fault Fault) error {
	if err := b.faults.inject(ctx, fault); err != nil {
		return fmt.Errorf("injecting fault %q: %w", fault.ID, err)
	}
	return nil
}

func (f *faultTable) inject(ctx context.Context, fault Fault) error {
	exprs, err := f.rule(fault)
	if err != nil {
		return err
	}
	if err := f.enter(fault.ID); err != nil {
		return err
	}
	defer f.leave(fault.ID)
	in := f.tables[record.FamilyOf(fault.Target.Addr())]
	rule := &nftables.Rule{Table: in.rules.table, Chain: in.chain, Exprs: exprs,
		UserData: userdata.AppendString(nil, userdata.TypeComment, fault.ID)}
	from := f.cfg.Now()
	if err := in.rules.commit(func(c *nftables.Conn) error { c.AddRule(rule); return nil }); err != nil {
		return fmt.Errorf("adding its rule: %w", err)
	}
	timer := time.NewTimer(fault.For)
	defer timer.Stop()
	f.record(fault, f.cfg.Now(), record.Fault{State: record.FaultBegin, From: new(from)})
	if err := in.find(rule); err != nil {
		return err
	}
	select {
	case <-timer.C:
	case <-ctx.Done():
		err = fmt.Errorf("ended early: %w", ctx.Err())
	case <-f.ended:
		err = errors.New("ended early: the balancer has ended")
	}
	at := f.cfg.Now()
	if gone := in.rules.commit(func(c *nftables.Conn) error { return c.DelRule(rule) }); gone != nil {
		return errors.Join(err, fmt.Errorf("removing its rule, which is still active: %w", gone))
	}
	f.record(fault, at, record.Fault{State: record.FaultEnd, Until: new(f.cfg.Now())})
	return err
}

// find reads the kernel's handle of an added rule.
func (f faultChain) find(rule *nftables.Rule) error {
	return f.rules.with(func(c *nftables.Conn) error {
		rules, err := c.GetRules(f.rules.table, f.chain)
		if err != nil {
			return fmt.Errorf("reading back its rule, which is active: %w", err)
		}
		for _, r := range rules {
			if string(r.UserData) == string(rule.UserData) {
				rule.Handle = r.Handle
				return nil
			}
		}
		return errors.New("reading back its rule: the kernel does not list it")
	})
}

func (f *faultTable) enter(id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.closed:
		return errors.New("the balancer has ended")
	case f.active[id]:
		return errors.New("a fault with this id is active")
	}
	f.active[id] = true
	f.all.Add(1)
	return nil
}

func (f *faultTable) leave(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.active, id)
	f.all.Done()
}

// close ends the active faults and removes the table.
func (f *faultTable) close() error {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	close(f.ended)
	f.all.Wait()
	return f.closeTables()
}

func (f *faultTable) closeTables() (err error) {
	for _, family := range record.DualStack.Each() {
		if t, has := f.tables[family]; has {
			err = errors.Join(err, t.rules.close())
		}
	}
	return err
}

// record records the begin or the end of a fault; the caller sets body.State and the time bound.
func (f *faultTable) record(fault Fault, at time.Duration, body record.Fault) {
	body.Fault, body.ID, body.Target, body.Lane, body.Control = fault.Kind, fault.ID, fault.Target.String(), fault.Lane, fault.Control
	f.cfg.Recorder.Event(record.Event{At: at, Node: fault.Node, Object: fault.ID,
		Text: fmt.Sprintf("injected %s of %s to %s: %s", fault.Kind, fault.For, fault.Target, body.State), Body: body})
}

// rule returns the nftables expressions of the fault.
func (f *faultTable) rule(fault Fault) ([]expr.Any, error) {
	protocol := or(fault.Protocol, "tcp")
	if err := f.check(fault, protocol); err != nil {
		return nil, err
	}
	number := map[string]byte{"tcp": 6, "udp": 17}[protocol]
	header := headers[record.FamilyOf(fault.Target.Addr())]
	exprs := []expr.Any{
		network(regA, header.target, header.size), equals(fault.Target.Addr().AsSlice()...),
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: regA}, equals(number),
		transport(regA, portDest, 2), equals(port2(fault.Target.Port())...),
	}
	if fault.Source.IsValid() {
		exprs = append(exprs, header.within(header.source, fault.Source)...)
	}
	if fault.Node != "" {
		n, err := f.cfg.Net.Node(fault.Node)
		if err != nil {
			return nil, err
		}
		exprs = append(exprs, &expr.Meta{Key: expr.MetaKeyMARK, Register: regA}, equals(mark(uint32(n.Number))...))
	}
	if protocol == "tcp" {
		mask, want := byte(flagSYN|flagACK), byte(flagSYN) // the first packet of a connection
		if fault.Kind == FaultReset {
			mask, want = flagPSH, flagPSH // data segments; SYN and FIN segments of the kernel have no PSH
		}
		exprs = append(exprs, transport(regA, tcpFlags, 1), masked(mask), equals(want))
	}
	return append(exprs, header.action(fault.Kind, protocol)), nil
}

func (h header) action(kind, protocol string) expr.Any {
	switch {
	case kind == FaultDrop:
		return verdictOf(expr.VerdictDrop)
	case protocol == "tcp":
		return &expr.Reject{Type: rejectTCPReset}
	default:
		return &expr.Reject{Type: rejectICMP, Code: h.unreachable}
	}
}

// From linux/netfilter/nf_tables.h (NFT_REJECT_*).
const (
	rejectICMP     = 0
	rejectTCPReset = 1
)

func (f *faultTable) check(fault Fault, protocol string) error {
	errs := []error{oneOf("kind", fault.Kind, FaultDrop, FaultRefuse, FaultReset), oneOf("protocol", protocol, "tcp", "udp")}
	switch {
	case fault.ID == "" || len(fault.ID) > 100:
		errs = append(errs, errors.New("its id must have 1 to 100 bytes"))
	case !fault.Target.IsValid() || fault.Target.Port() == 0 || !slices.Contains(familiesOf(f.cfg.Net), record.FamilyOf(fault.Target.Addr())):
		errs = append(errs, fmt.Errorf("target %s: give an address of the lab's families %s and a port", fault.Target, familiesOf(f.cfg.Net)))
	case fault.Source.IsValid() && fault.Source.Addr().Is4() != fault.Target.Addr().Is4():
		errs = append(errs, fmt.Errorf("source %s: give a prefix of the target's family", fault.Source))
	case fault.For <= 0:
		errs = append(errs, fmt.Errorf("its duration is %s: give more than 0", fault.For))
	case fault.Kind == FaultReset && protocol != "tcp":
		errs = append(errs, errors.New("only TCP connections can be reset"))
	case fault.Node != "" && f.cfg.Kind == KindHAProxy:
		errs = append(errs, errors.New("haproxy picks the node after this filter; leave Node empty"))
	}
	return errors.Join(errs...)
}
