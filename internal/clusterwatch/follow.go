package clusterwatch

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/hitless/hitless/cluster"
	"github.com/hitless/hitless/probes"
	"github.com/hitless/hitless/probes/session"
	"github.com/hitless/hitless/record"
)

// The intervals of a watch.
const (
	askAgain    = time.Second      // a target that has not answered yet is asked
	lookUpAgain = 30 * time.Second // names of load balancers are looked up
	pingAgain   = 5 * time.Second  // the API server is asked whether it answers, and still lists the Services
)

// backWithin is how long an address that was measured and comes back may take to answer. Then it is measured, and what it loses counts.
const backWithin = 10 * time.Second

// follow measures until the context or the duration ends, and follows the Services meanwhile.
func (w *watcher) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w.cluster.ReportSilences(w.silence)
	endAsking := w.noteRefusals(ctx)
	over, ended := make(chan error, 1), w.end()
	go func() {
		_, err := w.meter.Sleep(ctx, ended)
		over <- err
	}()
	if w.o.OnMeasuring != nil && ctx.Err() == nil {
		w.o.Progress(fmt.Sprintf("measuring %d addresses: the cluster may be changed now; %s ends the measurement and writes the report", len(w.lanes.all()), cmp.Or(w.o.EndHint, "Ctrl-C")))
		w.o.OnMeasuring()
	}
	f := &follower{watcher: w, answers: make(chan answer, 16), lookups: make(chan answer, 16)}
	err := f.loop(ctx, over)
	cancel()
	endAsking()
	w.cluster.ReportSilences(nil)
	w.stillSilent()
	f.report()
	w.meter.Step(w.step(), record.StepEnd)
	return err
}

// end is when the duration is over. That of a resumed watch began before the kill.
func (w *watcher) end() time.Duration {
	switch {
	case w.o.Duration == 0:
		return session.NoEnd
	case w.left != nil:
		return w.left.Since + w.o.Duration
	}
	return w.now() + w.o.Duration
}

// follower is the loop of a watch.
type follower struct {
	*watcher
	answers chan answer // of targets that were asked
	lookups chan answer // of names that were looked up
}

func (f *follower) loop(ctx context.Context, over <-chan error) error {
	ask, look := time.NewTicker(askAgain), time.NewTicker(lookUpAgain)
	defer ask.Stop()
	defer look.Stop()
	for {
		var err error
		select {
		case err = <-over:
			return err
		case <-f.services.changed:
			err = f.takeChanges()
		case <-ask.C:
			f.askWaiting(ctx)
		case <-look.C:
			f.lookUpNames(ctx)
		case a := <-f.answers:
			err = f.answered(a)
		case a := <-f.lookups:
			err = f.lookedUp(a)
		}
		if err != nil {
			return err
		}
	}
}

// takeChanges looks at each Service that has changed.
func (f *follower) takeChanges() error {
	for _, key := range f.services.take() {
		if err := f.takeChange(key); err != nil {
			return err
		}
	}
	return nil
}

func (f *follower) takeChange(key string) error {
	s := f.services
	at := f.now()
	before, had := s.known[key]
	now, unprobed, exists := s.look(key)
	f.noteUnprobed(unprobed)
	reason, text := record.ServiceChanged, "the Service "+key+" no longer has this address"
	switch {
	case !exists && !had:
		return nil
	case !exists:
		delete(s.known, key)
		reason, text = record.ServiceDeleted, "the Service "+key+" was deleted"
		if f.o.Selector != "" {
			text += fmt.Sprintf(", or no longer matches %q", f.o.Selector)
		}
		f.serviceEvent(at, key, reason, "", text)
	case !had:
		s.known[key] = now
		f.serviceEvent(at, key, record.ServiceCreated, "", "the Service "+key+" appeared")
	default:
		s.known[key] = now
		if !slices.Equal(before.externals, now.externals) {
			f.serviceEvent(at, key, record.ServiceChanged, "addresses", fmt.Sprintf("the Service %s has other addresses: %s", key, hosts(now.externals)))
		}
	}
	for _, e := range before.externals {
		if slices.Contains(now.externals, e) && exists {
			continue
		}
		delete(s.waiting, e)
		delete(s.names, e)
		if err := f.endLane(e, at, reason, text); err != nil {
			return err
		}
	}
	for _, e := range now.externals {
		if exists && !slices.Contains(before.externals, e) {
			s.waiting[e] = &waiting{since: at}
		}
	}
	return nil
}

func hosts(all []cluster.External) string {
	var words []string
	for _, e := range all {
		words = append(words, fmt.Sprintf("%s port %d", e.Host, e.Number))
	}
	return cmp.Or(strings.Join(words, ", "), "none")
}

// serviceEvent records what became of a Service. While the API was away, it may have happened at any time since its last answer.
func (w *watcher) serviceEvent(at time.Duration, key string, state record.ServiceState, fields, text string) {
	body := record.Service{Service: key, State: state, Fields: fields}
	if from, away := w.causes.awayUntil(at); away {
		body.From = &from
	}
	w.record.Event(record.Event{At: at, Object: key, Text: text, Body: body})
}

// noteUnprobed names ports of other protocols, once each.
func (w *watcher) noteUnprobed(ports []string) {
	for _, port := range ports {
		w.services.unprobed[port] = true
	}
}

// askWaiting asks each target that waits and is not being asked.
func (f *follower) askWaiting(ctx context.Context) {
	for e, wait := range f.services.waiting {
		if wait.asking || wait.refused {
			continue
		}
		wait.asking = true
		local := f.services.known[e.Service].local
		go func() { send(ctx, f.answers, f.ask(ctx, e, local)) }()
	}
}

func send(ctx context.Context, to chan<- answer, a answer) {
	select {
	case to <- a:
	case <-ctx.Done():
	}
}

// answered begins the lane of a target that has answered.
func (f *follower) answered(a answer) error {
	wait := f.services.waiting[a.External]
	if wait == nil { // its Service is gone meanwhile
		return nil
	}
	wait.asking = false
	said := "answers"
	if a.err != nil {
		wait.reason = a.err.Error()
		if !f.returns(&a, wait) {
			return nil
		}
		said = "was measured before and does not answer"
	}
	if why := f.room(a.lane); why != "" {
		f.refuse(a.External, wait, why)
		return nil
	}
	delete(f.services.waiting, a.External)
	f.services.names[a.External] = a.addresses
	f.remark("info", fmt.Sprintf("%s %s %.1f s after it was seen; its lane begins", a.External, said, (f.now()-wait.since).Seconds()))
	return f.startLane(a.target, f.now()+session.Lead, true)
}

// returns reports whether an address that does not answer was measured before, and is back for long enough. Its lane is like the last one. A
// resumed watch does not know that, and begins it only if no answer is needed to tell which ones are correct.
func (f *follower) returns(a *answer, wait *waiting) bool {
	if !f.lanes.used(a.External) || f.now()-wait.since < backWithin {
		return false
	}
	last, known := f.lanes.again(a.External)
	now := a.lane // without an address if its name cannot be looked up
	if !known {
		return now.Target.IsValid() && now.Protocol == probes.ProtocolTCPDial
	}
	a.lane = last.lane
	a.lane.Name = a.External.String()
	if now.Target.IsValid() {
		a.lane.Target = now.Target
	} else {
		a.addresses = map[netip.Addr]bool{a.lane.Target.Addr(): true}
	}
	return true
}

// lookUpNames looks up the names of load balancers.
func (f *follower) lookUpNames(ctx context.Context) {
	for _, t := range f.lanes.all() {
		if _, err := netip.ParseAddr(t.Host); err == nil {
			continue
		}
		go func() {
			addresses, err := f.lookUp(ctx, t.Host)
			send(ctx, f.lookups, answer{target: t, addresses: addresses, err: err})
		}()
	}
}

// lookedUp ends the lane to an address that its name no longer has. Its next lane is to another one.
func (f *follower) lookedUp(a answer) error {
	if a.err != nil || a.addresses[a.lane.Target.Addr()] || !f.lanes.runs(a.target) { // a late answer may be about an earlier lane
		return nil
	}
	at, text := f.now(), fmt.Sprintf("the name %s no longer has the address %s", a.Host, a.lane.Target.Addr())
	f.serviceEvent(at, a.Service, record.ServiceChanged, "addresses", "the Service "+a.Service+" has another address: "+text)
	f.services.waiting[a.External] = &waiting{since: at}
	return f.endLane(a.External, at, record.ServiceChanged, text)
}

// report records what was not measured at the end.
func (f *follower) report() {
	at := f.now()
	lacking := slices.Sorted(maps.Keys(f.lanes.before))
	for _, name := range lacking {
		f.missing(name, at)
	}
	waiting := f.services.waiting
	for _, e := range f.services.waitingByName() {
		if slices.Contains(lacking, e.String()) {
			continue // the record says so
		}
		why := cmp.Or(waiting[e].reason, "it was not asked yet")
		switch {
		case waiting[e].refused:
		case f.lanes.used(e):
			why = fmt.Sprintf("it came back %.1f s before the end, and has not answered since: %s", (at - waiting[e].since).Seconds(), why)
		default:
			why = "it never answered: " + why
		}
		f.skip(e.String(), why)
	}
	for _, port := range slices.Sorted(maps.Keys(f.services.unprobed)) {
		f.skip(port, "only TCP ports are probed")
	}
}

// skip records that an object was not measured.
func (w *watcher) skip(object, reason string) {
	w.record.Event(record.Event{At: w.now(), Object: object, Text: reason, Body: record.Skipped{}})
}

// goOn begins where a killed watch ended: what it did not record is missing. A target that was measured before is measured at once,
// whether it answers or not, so that its loss is not taken for a wait.
func (w *watcher) goOn() error {
	s := w.services
	w.remark("warning", fmt.Sprintf("the watch was killed, or the machine went down, after %.1f s, and goes on", w.left.Last.Seconds()))
	for _, key := range s.take() {
		now, unprobed, exists := s.look(key)
		if !exists {
			continue
		}
		s.known[key] = now
		w.noteUnprobed(unprobed)
		for _, e := range now.externals {
			if err := w.goOnAt(e, now.local); err != nil {
				return err
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.lanes.before)) { // their addresses are gone
		before := w.lanes.before[name]
		if w.waitsFor(name) {
			continue
		}
		w.missing(name, w.now())
		_, exists := s.known[before.Service]
		state, text := record.ServiceChanged, "the Service "+before.Service+" no longer has this address"
		if !exists {
			state, text = record.ServiceDeleted, "the Service "+before.Service+" was deleted"
		}
		from, now := w.left.Last, w.now()
		w.record.Event(record.Event{At: now, Object: before.Service, Text: text, Body: record.Service{Service: before.Service, State: state, From: &from}})
		w.record.Event(record.Event{At: now, Object: before.Name, Text: "lane " + before.Name + " ends: " + text, Body: record.LaneEnd{Lane: before.ID, Reason: state}})
	}
	return nil
}

// goOnAt begins the next lane to an address. It waits for its first answer if it is a new address, if its name cannot be looked up, or if
// the lane needs to know what a correct answer is.
func (w *watcher) goOnAt(e cluster.External, local bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), askAgain)
	defer cancel()
	l, addresses, err := w.lane(ctx, e)
	if _, was := w.lanes.before[e.String()]; !was || err != nil || l.Protocol != probes.ProtocolTCPDial {
		w.services.waiting[e] = &waiting{since: w.now()}
		return nil
	}
	if why := w.lanes.room(l); why != "" {
		w.services.waiting[e] = &waiting{since: w.now()}
		w.refuse(e, w.services.waiting[e], why)
		return nil
	}
	w.services.names[e] = addresses
	return w.startLane(target{External: e, lane: l, local: local}, w.now()+session.Lead, true) // look-ups take time
}

// waitsFor reports whether an external address of that name waits for its first answer.
func (w *watcher) waitsFor(name string) bool {
	for e := range w.services.waiting {
		if e.String() == name {
			return true
		}
	}
	return false
}

// missing records that an external address has no record from a kill until an instant; once.
func (w *watcher) missing(name string, until time.Duration) {
	l, was := w.lanes.before[name]
	if !was {
		return
	}
	delete(w.lanes.before, name)
	w.record.Event(record.Event{At: w.now(), Object: l.Name, Text: "the watch was killed, or the machine went down, and nothing was recorded until it went on",
		Body: record.MissingRecord{Lane: l.ID, From: min(l.From, until), To: until, Seq: l.Seq}})
}
