package record

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Flow is one connection that a terminating load balancer accepted from a client and forwarded to a node, as its log says.
// It is the only source for the node of an attempt without an answer there.
type Flow struct {
	Source netip.AddrPort // the client's end of the connection
	Node   string
	At     time.Duration // when the load balancer accepted it; flowEarly and flowLate bound the error
}

// The load balancer's log counts in milliseconds, and its lines arrive late.
const (
	flowEarly = 5 * time.Millisecond
	flowLate  = 100 * time.Millisecond
)

// FlowList is the attribute flows of Flows: source/node/atNs, separated by blanks.
type FlowList []Flow

// MarshalText formats the list.
func (fs FlowList) MarshalText() ([]byte, error) {
	var b []byte
	for i, f := range fs {
		if i > 0 {
			b = append(b, ' ')
		}
		b = fmt.Appendf(b, "%s/%s/%d", f.Source, f.Node, int64(f.At))
	}
	return b, nil
}

// UnmarshalText parses the list.
func (fs *FlowList) UnmarshalText(text []byte) error {
	for word := range strings.FieldsSeq(string(text)) {
		f, err := parseFlow(word)
		if err != nil {
			return fmt.Errorf("flow %q: %w", word, err)
		}
		*fs = append(*fs, f)
	}
	return nil
}

func parseFlow(text string) (Flow, error) {
	source, rest, _ := strings.Cut(text, "/")
	node, at, _ := strings.Cut(rest, "/")
	address, err := netip.ParseAddrPort(source)
	if err != nil {
		return Flow{}, err
	}
	ns, err := strconv.ParseInt(at, 10, 64)
	if err != nil {
		return Flow{}, err
	}
	return Flow{netip.AddrPortFrom(address.Addr().Unmap(), address.Port()), node, time.Duration(ns)}, nil
}

// flowLog has the logged connections to one frontend; settle orders it.
type flowLog []Flow

func (fs flowLog) add(more []Flow, words map[string]string) flowLog {
	for _, f := range more {
		if words[f.Node] == "" {
			words[f.Node] = strings.Clone(f.Node)
		}
		f.Node = words[f.Node]
		fs = append(fs, f)
	}
	return fs
}

func (fs flowLog) settle() {
	slices.SortFunc(fs, func(x, y Flow) int { return cmp.Or(x.Source.Compare(y.Source), cmp.Compare(x.At, y.At)) })
}

// find returns the connection that an attempt was made on. Where each attempt opens one, no five-tuple is used again before
// its last attempt has ended; elsewhere it is the latest connection with that five-tuple.
func (fs flowLog) find(a *Attempt, opens bool) (Flow, bool) {
	source := netip.AddrPortFrom(a.Source.Addr().Unmap(), a.Source.Port())
	i, _ := slices.BinarySearchFunc(fs, a.Start+a.Total+flowLate, func(f Flow, until time.Duration) int {
		return cmp.Or(f.Source.Compare(source), cmp.Compare(f.At, until+1))
	})
	i--
	for opens && i > 0 && fs[i-1].Source == source && fs[i-1].At >= a.Start-flowEarly {
		i--
	}
	if i < 0 || fs[i].Source != source || (opens && fs[i].At < a.Start-flowEarly) {
		return Flow{}, false
	}
	return fs[i], true
}
