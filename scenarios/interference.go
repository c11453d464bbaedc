package scenarios

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios/timeline"
)

// The parameters of interference alone.
var (
	// Meddling is what the other program does.
	Meddling = newWord("what", "flush", "flush (`nft flush ruleset`), reload (a firewall flushes all rules and loads its own), stale-drop (a rule drops packets to the node's pods), stale-allow "+
		"(a rule that hides such a drop, and is cleaned up), second (another proxy that was left running) or programs (the programs that the proxy writes its rules with fail)",
		"flush", "reload", "stale-drop", "stale-allow", Second, Programs)
	hiddenFor = newDuration("hidden", "10s", "time from the stale allow rule to its deletion", time.Second, time.Hour)
	lastsFor  = newDuration("lasts", "10s", "time that the stale rule drops; with flush and reload, time that the proxy has to repair; "+
		"with programs, time that the programs fail after the pod has ended", time.Second, time.Hour)
)

// interference lets another program change a node's rules. A firewall's reload does that (spatiumddi#382), or a NetworkPolicy agent that
// left a stale drop behind, or a stale allow that hides a drop. The proxy's own programs can fail too, as on a node without memory.
func interference() Scenario {
	return Scenario{
		Name:    "interference",
		Summary: "lets another program flush a node's rules, add a stale drop or allow rule, or run a second proxy. Or it lets the proxy's own programs fail",
		Steps:   interferenceSteps,
		Parameters: []Parameter{
			laneParameters(),
			Meddling.Parameter,
			nodeChoice.Parameter,
			To.withHelp("with second: the proxy that runs beside the subject, such as kube-proxy@v1.37.1/iptables"),
			hiddenFor.Parameter,
			lastsFor.Parameter,
			Replicas.withDefault("3"),
		},
		Setup: func(p Params) Setup { return Setup{Lasts: p.interferenceTime()} },
		Run: func(ctx context.Context, w *World) error {
			node, err := w.chooseNode(ctx)
			if err != nil {
				return err
			}
			return w.interfere(ctx, node)
		},
	}
}

func interferenceSteps(p Params) []string {
	switch Meddling.Of(p) {
	case Second:
		return []string{stepCommand, stepSecond, "pod terminate", "expect rolled-out", "expect balanced"}
	case Programs:
		return []string{timeline.Block, "pod terminate", "expect gone", timeline.Unblock, "expect rolled-out", "expect balanced"}
	}
	return []string{"node run"}
}

// interfere disturbs a node in the way that the parameters name, in one step.
func (w *World) interfere(ctx context.Context, node string) error {
	name, do := "clean a stale allow on "+node, w.staleAllow
	switch Meddling.Of(w.Params) {
	case "flush":
		name, do = "flush the ruleset of "+node, func(ctx context.Context, node string) error {
			return w.flushRuleset(ctx, node, "`nft flush ruleset`", "flush", "ruleset")
		}
	case "reload":
		name, do = "reload the firewall of "+node, w.reloadFirewall
	case Second:
		name, do = "leave a second proxy running on "+node, w.secondProxy
	case Programs:
		name, do = "let the programs of the proxy of "+node+" fail", w.failPrograms
	case "stale-drop":
		name, do = "leave a stale drop on "+node, w.staleDrop
	}
	return w.Step(ctx, name, node, func(ctx context.Context) error { return do(ctx, node) })
}

// interferenceTime is about how long interference takes; 0 for a second proxy, whose effects are waited for.
func (p Params) interferenceTime() time.Duration {
	switch Meddling.Of(p) {
	case Second:
		return 0
	case "stale-allow":
		return hiddenFor.Of(p) + lastsFor.Of(p)
	case Programs:
		return p.exitTime() + lastsFor.Of(p)
	}
	return lastsFor.Of(p)
}

// nft runs nft on a node.
func (w *World) nft(ctx context.Context, node string, words ...string) (string, error) {
	nodes, err := part[Commands](w.Site, NodeCommands)
	if err != nil {
		return "", err
	}
	out, err := nodes.Command(ctx, node, append([]string{"/usr/sbin/nft"}, words...)...)
	if err != nil {
		return out, fmt.Errorf("nft %s on %s: %w: %s", strings.Join(words, " "), node, err, strings.TrimSpace(out))
	}
	return out, nil
}

// changeRules runs nft with a command that changes a node's rules, and writes it into the run's timeline. A listing is no step.
func (w *World) changeRules(ctx context.Context, node string, words ...string) error {
	w.write(timeline.Step{Verb: "node run", Object: node, Text: "nft " + strings.Join(words, " ")})
	_, err := w.nft(ctx, node, words...)
	return err
}

// recordInterference records the begin or end of an interference; what names it in a clause. at is the time before the
// command, because a rule is in force before its command has ended.
func (w *World) recordInterference(at time.Duration, node string, state record.InterferenceState, what string) {
	w.Recorder.Event(interferenceEvent(at, node, Meddling.Of(w.Params), state, what))
}

func interferenceEvent(at time.Duration, node, object string, state record.InterferenceState, what string) record.Event {
	return record.Event{At: at, Node: node, Object: object, Text: what, Body: record.Interference{State: state, ID: node, What: what}}
}

// ruleLine matches a rule in the output of `nft -a list ruleset`; tables, chains, sets and maps have handles too.
var ruleLine = regexp.MustCompile(`(?m)^\t\t\S.* # handle \d+$`)

// tableLine matches a table in that output, with its handle. A table that is created again has another handle.
var tableLine = regexp.MustCompile(`(?m)^table .* # handle \d+$`)

// ruleset returns the tables of a node and the number of their rules.
func (w *World) ruleset(ctx context.Context, node string) (tables []string, rules int, err error) {
	out, err := w.nft(ctx, node, "-a", "list", "ruleset")
	return tableLine.FindAllString(out, -1), len(ruleLine.FindAllString(out, -1)), err
}

// flushRuleset removes all rules of a node with a command of nft, and gives the proxy time to restore its own. A proxy
// may restore them before the next listing, so the handles of the tables are compared.
func (w *World) flushRuleset(ctx context.Context, node, what string, command ...string) error {
	old, before, err := w.ruleset(ctx, node)
	if err != nil {
		return err
	}
	if before == 0 {
		return fmt.Errorf("%s has no rule in nftables: there is nothing to flush", node)
	}
	at := w.Clock.Now()
	if err := w.changeRules(ctx, node, command...); err != nil {
		return err
	}
	tables, rules, err := w.ruleset(ctx, node)
	if err != nil {
		return err
	}
	if kept := common(old, tables); len(kept) > 0 {
		return fmt.Errorf("%s still has %s: nothing was flushed", node, strings.Join(kept, ", "))
	}
	w.recordInterference(at, node, record.InterferenceBegin, fmt.Sprintf("%s took the %d rules of %s away", what, before, node))
	w.excuse(node, fmt.Sprintf("%s took the rules of %s away, and a proxy may take %s to write them again", what, node, followTime),
		record.Excuse{Path: record.PathNode, From: at, Until: at + followTime}, refusals)
	return w.awaitRepair(ctx, node, before, rules)
}

// awaitRepair records when the node has as many rules as before, until the time of the scenario is over.
func (w *World) awaitRepair(ctx context.Context, node string, before, now int) error {
	end := w.Clock.Now() + lastsFor.Of(w.Params)
	for repaired := false; ; {
		if !repaired && now >= before {
			repaired = true
			w.recordInterference(w.Clock.Now(), node, record.InterferenceEnd, fmt.Sprintf("%s has %d rules again", node, now))
		}
		if w.Clock.Now() >= end {
			return nil
		}
		if err := w.Clock.Sleep(ctx, time.Second); err != nil {
			return err
		}
		var err error
		if _, now, err = w.ruleset(ctx, node); err != nil {
			return err
		}
	}
}

// common are the strings in both lists.
func common(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(s string) bool { return !slices.Contains(b, s) })
}

const firewall = "host-firewall"

// firewallRules is the file of a firewall, such as /etc/nftables.conf: it flushes all rules and loads its own in one
// transaction. It drops no traffic of Services.
var firewallRules = strings.Join([]string{
	"flush ruleset",
	"add table inet " + firewall,
	"add chain inet " + firewall + " forward { type filter hook forward priority 0 ; policy accept ; }",
	"add rule inet " + firewall + " forward ct state established,related counter accept",
	"add rule inet " + firewall + " forward counter accept",
}, "; ")

// reloadFirewall loads a firewall besides the proxy's rules, and then reloads it.
func (w *World) reloadFirewall(ctx context.Context, node string) error {
	beside := strings.TrimPrefix(firewallRules, "flush ruleset; ")
	if err := w.changeRules(ctx, node, beside); err != nil {
		return err
	}
	if err := w.flushRuleset(ctx, node, "the reload of the firewall `table inet "+firewall+"`", firewallRules); err != nil {
		return err
	}
	tables, _, err := w.ruleset(ctx, node)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(tables, func(t string) bool { return strings.HasPrefix(t, "table inet "+firewall+" ") }) {
		return fmt.Errorf("%s has no firewall after its reload: it was not loaded anew", node)
	}
	return w.changeRules(ctx, node, "delete", "table", "inet", firewall)
}

const (
	staleTable = "stale-policy"
	staleChain = "pods"
	staleAllow = "allow of a policy that is gone"
	staleDrop  = "default deny of a policy"
)

// staleMatch is the match of rules like those of a NetworkPolicy agent, for packets to the node's pods of the Deployment, and the part of
// the ready pods that it matches: a drop makes these pods unready.
func (w *World) staleMatch(ctx context.Context, node string) (match string, share podShare, err error) {
	share, err = w.sharesOn(ctx, node)
	if err != nil {
		return "", share, err
	}
	pods, err := w.run.main.pods(ctx, w)
	if err != nil {
		return "", share, fmt.Errorf("listing the pods: %w", err)
	}
	family := w.families()[0] // the only one: checkStale
	var addresses []string
	for _, p := range pods {
		if ip, has := family.Among(podIPs(p)...); has && p.Spec.NodeName == node {
			addresses = append(addresses, ip)
		}
	}
	if len(addresses) == 0 {
		return "", share, fmt.Errorf("no pod of the Deployment is on %s", node)
	}
	slices.Sort(addresses)
	header := "ip"
	if family == record.IPv6 {
		header = "ip6"
	}
	return header + " daddr { " + strings.Join(addresses, ", ") + " }", share, nil
}

// addStaleRules makes the table with these rules, each a verdict and a comment, in one transaction: a proxy may delete a table at once.
func (w *World) addStaleRules(ctx context.Context, node, match string, rules ...[2]string) error {
	all := []string{"add table inet " + staleTable, "add chain inet " + staleTable + " " + staleChain + " { type filter hook postrouting priority 0 ; }"}
	for _, r := range rules {
		all = append(all, fmt.Sprintf("add rule inet %s %s %s counter %s comment %q", staleTable, staleChain, match, r[0], r[1]))
	}
	return w.changeRules(ctx, node, strings.Join(all, "; "))
}

// staleRule is the text of a stale rule, as `nft list` shows it.
func staleRule(match, verdict string) string {
	return fmt.Sprintf("`table inet %s { %s %s }`", staleTable, match, verdict)
}

// ruleCount matches a rule in the listing, with its counter, comment and handle.
var ruleCount = regexp.MustCompile(`counter packets (\d+) bytes \d+ \S+ comment "([^"]*)" # handle (\d+)`)

// counters returns the packets of each stale rule and the rules' handles, both by comment. A table that is gone has none.
func (w *World) counters(ctx context.Context, node string) (packets map[string]int, handles map[string]string, err error) {
	packets, handles = map[string]int{}, map[string]string{}
	out, err := w.nft(ctx, node, "-a", "list", "table", "inet", staleTable)
	if err != nil {
		tables, _, unlisted := w.ruleset(ctx, node)
		if unlisted == nil && !slices.ContainsFunc(tables, func(t string) bool { return strings.HasPrefix(t, "table inet "+staleTable+" ") }) {
			err = nil
		}
		return packets, handles, err
	}
	return readCounters(out)
}

// readCounters reads the listing of the stale table. A rule that it cannot read is an error: it would seem to be gone.
func readCounters(listing string) (packets map[string]int, handles map[string]string, err error) {
	packets, handles = map[string]int{}, map[string]string{}
	for line := range strings.Lines(listing) {
		if !strings.Contains(line, " comment ") {
			continue
		}
		m := ruleCount.FindStringSubmatch(line)
		if m == nil {
			return nil, nil, fmt.Errorf("reading the counters of `table inet %s`: nft lists a rule in an unknown form: %s", staleTable, strings.TrimSpace(line))
		}
		packets[m[2]], _ = strconv.Atoi(m[1])
		handles[m[2]] = m[3]
	}
	return packets, handles, nil
}

// noteRemoval records that rules of another program are gone: on a node only the proxy changes rules besides the scenario.
func (w *World) noteRemoval(node string) {
	w.recordInterference(w.Clock.Now(), node, record.InterferenceRemoved, fmt.Sprintf("the proxy of %s removed rules of another program, in `table inet %s`", node, staleTable))
}

// deleteStaleTable deletes what is left of the table.
func (w *World) deleteStaleTable(ctx context.Context, node string) error {
	return w.changeRules(ctx, node, "add table inet "+staleTable+"; delete table inet "+staleTable)
}

// staleDrop adds a rule that drops packets to the node's pods, and removes it later.
func (w *World) staleDrop(ctx context.Context, node string) error {
	match, share, err := w.staleMatch(ctx, node)
	if err != nil {
		return err
	}
	at := w.Clock.Now()
	if err := w.addStaleRules(ctx, node, match, [2]string{"drop", staleDrop}); err != nil {
		return err
	}
	w.recordInterference(at, node, record.InterferenceBegin, fmt.Sprintf("the foreign rule %s was left on %s", staleRule(match, "drop"), node))
	return w.dropForTime(ctx, at, node, match, share)
}

// staleAllow adds an allow and a drop behind it, and then removes the allow.
func (w *World) staleAllow(ctx context.Context, node string) error {
	match, share, err := w.staleMatch(ctx, node)
	if err == nil {
		err = w.addStaleRules(ctx, node, match, [2]string{"accept", staleAllow}, [2]string{"drop", staleDrop})
	}
	if err == nil {
		err = w.Clock.Sleep(ctx, hiddenFor.Of(w.Params))
	}
	if err != nil {
		return err
	}
	packets, handles, err := w.counters(ctx, node)
	switch {
	case err != nil:
		return err
	case len(handles) < 2:
		w.noteRemoval(node)
		return w.deleteStaleTable(ctx, node)
	case packets[staleAllow] == 0 || packets[staleDrop] != 0:
		return fmt.Errorf("the stale allow met %d packets and the drop behind it %d: it hid nothing", packets[staleAllow], packets[staleDrop])
	}
	at := w.Clock.Now()
	if err := w.changeRules(ctx, node, "delete", "rule", "inet", staleTable, staleChain, "handle", handles[staleAllow]); err != nil {
		return err
	}
	w.recordInterference(at, node, record.InterferenceBegin, fmt.Sprintf("the stale allow %s was cleaned up on %s, which had hidden the foreign rule %s",
		staleRule(match, "accept"), node, staleRule(match, "drop")))
	return w.dropForTime(ctx, at, node, match, share)
}

// dropForTime lets the stale rule drop for the time of the scenario, and deletes the table. A rule that is there and has no packets is
// an error. at is when the rule began to drop, and share the part of the pods that it matches.
func (w *World) dropForTime(ctx context.Context, at time.Duration, node, match string, share podShare) error {
	if err := w.Clock.Sleep(ctx, lastsFor.Of(w.Params)); err != nil {
		return err
	}
	packets, handles, err := w.counters(ctx, node)
	if err != nil {
		return err
	}
	removed := handles[staleDrop] == ""
	if removed {
		w.noteRemoval(node)
	}
	if err := w.deleteStaleTable(ctx, node); err != nil {
		return err
	}
	gone := w.Clock.Now()
	w.recordInterference(gone, node, record.InterferenceEnd, "the foreign rule on "+node+" is gone")
	if packets[staleDrop] == 0 && !removed {
		return errors.New("the foreign rule met no packet: nothing was disturbed")
	}
	served, err := w.awaitServing(ctx, node, gone)
	if err != nil {
		return err
	}
	w.excuseDrop(at, served, node, staleRule(match, "drop"), share)
	return nil
}

// awaitServing waits until the node's pods are ready: the rule dropped their readiness probes too. It returns the time at which a proxy must
// have followed; gone if they were ready then.
func (w *World) awaitServing(ctx context.Context, node string, gone time.Duration) (time.Duration, error) {
	was := true
	err := w.Until(ctx, "the pods on "+node+" to be ready again", w.podReplacementTime(), func(ctx context.Context) (bool, string, error) {
		pods, err := w.run.main.pods(ctx, w)
		waiting := slices.ContainsFunc(pods, func(p corev1.Pod) bool {
			return p.Spec.NodeName == node && p.DeletionTimestamp == nil && !podIsReady(p)
		})
		was = was && !waiting
		return !waiting, "a pod is not ready", err
	})
	if err != nil || was {
		return gone, err
	}
	return w.Clock.Now() + followTime, nil
}

// Second is the value of Meddling for another proxy besides the subject.
const Second = "second"

// secondProxy starts another proxy on the node, and replaces a pod once its rules exist, so that both follow. A second
// proxy that ends, or writes no rules, is an error.
func (w *World) secondProxy(ctx context.Context, node string) error {
	proxies, err := w.proxies()
	if err != nil {
		return err
	}
	_, before, err := w.ruleset(ctx, node)
	if err != nil {
		return err
	}
	at, other := w.Clock.Now(), To.Of(w.Params)
	alive, err := proxies.StartSecond(node, other)
	if err != nil {
		return err
	}
	err = w.Until(ctx, "rules of "+other+" on "+node, time.Minute, func(ctx context.Context) (bool, string, error) {
		_, now, err := w.ruleset(ctx, node)
		return now > before, fmt.Sprintf("%d rules, as before %d", now, before), errors.Join(alive(), err)
	})
	if err != nil {
		return err
	}
	w.recordInterference(at, node, record.InterferenceBegin, fmt.Sprintf("%s was left running on %s beside %s", other, node, proxies.Subject(node)))
	if _, err := w.deletePod(ctx, node); err != nil {
		return err
	}
	if err := w.await(ctx, "rolled-out", w.run.main.name, w.podReplacementTime()); err != nil {
		return err
	}
	if err := w.awaitBalanced(ctx); err != nil {
		return err
	}
	if err := w.Clock.Sleep(ctx, lastsFor.Of(w.Params)); err != nil {
		return err
	}
	return alive()
}
