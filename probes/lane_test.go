//go:build unix

package probes

import (
	"encoding/json"
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/hitless/hitless/record"
)

var addresses = cmpopts.EquateComparable(netip.AddrPort{}, netip.Prefix{})

func fullLane() Lane {
	return Lane{ID: 7, Name: "vip", Client: "outside", Target: netip.MustParseAddrPort("203.0.113.10:80"), Protocol: "tcp-new",
		Policy: "reuse:5s", Close: "rst", Rate: 12.5, SourcePrefix: netip.MustParsePrefix("10.200.0.0/16"),
		DialDeadline: 3 * time.Second, ReplyDeadline: 1500 * time.Millisecond, DelayedAfter: 500 * time.Millisecond,
		Backends: []string{"web-"}, Host: "web.example", Control: true, InFlight: 99}
}

func TestLaneJSON(t *testing.T) {
	const want = `{"id":7,"name":"vip","client":"outside","target":"203.0.113.10:80","protocol":"tcp-new","policy":"reuse:5s",` +
		`"close":"rst","rate":12.5,"sourcePrefix":"10.200.0.0/16","backends":["web-"],"host":"web.example","control":true,` +
		`"inFlight":99,"dialDeadline":"3s","replyDeadline":"1.5s","delayedAfter":"500ms"}`
	data, err := json.Marshal(fullLane())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(data)); diff != "" {
		t.Error(diff)
	}
	long := longLane(netip.MustParseAddrPort("203.0.113.10:80"), 10, 50)
	long.StallAfter = 300 * time.Millisecond
	for _, l := range []Lane{fullLane(), long, {ID: 1, Name: "small", Target: netip.MustParseAddrPort("[fd00::1]:80"), Rate: 1}} {
		var back Lane
		data, err := json.Marshal(&l)
		if err == nil {
			err = json.Unmarshal(data, &back)
		}
		if diff := cmp.Diff(l, back, addresses); err != nil || diff != "" {
			t.Error(err, diff)
		}
	}
	for _, bad := range []string{`{"rat":1}`, `{"dialDeadline":"3"}`, `{"dialDeadline":3}`, `{"target":"web:80"}`, `[]`} {
		if err := json.Unmarshal([]byte(bad), new(Lane)); err == nil {
			t.Errorf("%s: no error", bad)
		}
	}
}

func TestLaneValidate(t *testing.T) {
	if err := fullLane().Validate(); err != nil {
		t.Error(err)
	}
	for word, change := range map[string]func(*Lane){
		"name":      func(l *Lane) { l.Name = "" },
		"target":    func(l *Lane) { l.Target = netip.AddrPort{} },
		"port":      func(l *Lane) { l.Target = netip.AddrPortFrom(l.Target.Addr(), 0) },
		"zone":      func(l *Lane) { l.Target, l.SourcePrefix = netip.MustParseAddrPort("[fe80::1%eth0]:80"), netip.Prefix{} },
		"protocol":  func(l *Lane) { l.Protocol = "tcp" },
		"close":     func(l *Lane) { l.Close = "hard" },
		"rate":      func(l *Lane) { l.Rate = 0 },
		"rate NaN":  func(l *Lane) { l.Rate = math.NaN() },
		"rate 1e+":  func(l *Lane) { l.Rate = 1e9 },
		"rate 1e-7": func(l *Lane) { l.Rate = 1e-7 },
		"negative":  func(l *Lane) { l.DialDeadline = -1 },
		"families":  func(l *Lane) { l.SourcePrefix = netip.MustParsePrefix("fd00::/64") },
		"host":      func(l *Lane) { l.Host = "a\r\nb: c" },
		"empty":     func(l *Lane) { l.Backends = []string{""} },
		"policy":    func(l *Lane) { l.Policy = "sticky" },
		"interval":  func(l *Lane) { l.Policy = "reuse:0s" },
		"deadlines": func(l *Lane) { l.Policy = "reuse:1s" }, // shorter than the deadlines
		"need":      func(l *Lane) { l.Policy = "reuse:300h" },
		"only a":    func(l *Lane) { l.Connections = 5 },
		"50000":     func(l *Lane) { l.Protocol, l.Policy, l.Connections = ProtocolTCPLong, PolicyFresh, 50000 },
		"stall":     func(l *Lane) { l.Protocol, l.Policy, l.StallAfter = ProtocolTCPLong, PolicyFresh, 2*time.Second },
		"fresh":     func(l *Lane) { l.Protocol = ProtocolTCPLong },
	} {
		l := fullLane()
		change(&l)
		first, _, _ := strings.Cut(word, " ")
		if word == "need" {
			first = "five-tuples"
		}
		if err := l.Validate(); err == nil || !strings.Contains(err.Error(), first) || !strings.Contains(err.Error(), "lane 7") {
			t.Errorf("%s: %v", word, err)
		}
	}
}

// At the lowest rate, two attempts are due at different times that nothing overflows.
func TestScheduleOfTheLowestRate(t *testing.T) {
	l := fullLane()
	l.Policy, l.Rate = PolicyFresh, MinRate
	if err := l.Validate(); err != nil {
		t.Fatal(err)
	}
	c := cursor{schedule: schedule{start: time.Hour, rate: l.Rate}, end: never}
	if first := c.due(); first != time.Hour {
		t.Errorf("the first attempt is due at %v", first)
	}
	if c.next++; c.due() != time.Hour+1e6*time.Second {
		t.Errorf("the second attempt is due at %v", c.due())
	}
}

func TestLaneDefaults(t *testing.T) {
	got := Lane{ID: 1, Name: "vip", Target: netip.MustParseAddrPort("203.0.113.10:80"), Rate: 100}.WithDefaults()
	want := Lane{ID: 1, Name: "vip", Target: got.Target, Rate: 100, Protocol: ProtocolTCPNew, Policy: PolicyFresh, Close: CloseFIN,
		Host: "203.0.113.10:80", Path: "/hostname", DialDeadline: 3 * time.Second, ReplyDeadline: time.Second, InFlight: 1600}
	if diff := cmp.Diff(want, got, addresses); diff != "" {
		t.Error(diff)
	}
}

func TestLaneEvent(t *testing.T) {
	want := record.Event{At: time.Second, Object: "vip",
		Text: "lane vip: tcp-new to 203.0.113.10:80, 12.5/s, reuse:5s five-tuples, rst close",
		Body: record.Lane{ID: 7, Name: "vip", Client: "outside", Target: "203.0.113.10:80", Protocol: "tcp-new",
			Policy: "reuse:5s", Close: "rst", Rate: 12.5, Dial: 3 * time.Second, Reply: 1500 * time.Millisecond, Control: true}}
	if diff := cmp.Diff(want, fullLane().Event(time.Second)); diff != "" {
		t.Error(diff)
	}
}

func TestPreflight(t *testing.T) {
	limits := Limits{ConntrackMax: 262144, Descriptors: 1 << 20}
	lane := func(rate float64, close, prefix string) Lane {
		l := testLane(rate)
		l.Close, l.SourcePrefix = close, netip.Prefix{}
		if prefix != "" {
			l.SourcePrefix = netip.MustParsePrefix(prefix)
		}
		return l
	}
	const wide = "10.200.0.0/16"
	another, datagrams := lane(110, CloseFIN, ""), lane(200, CloseFIN, "")
	another.Target = netip.MustParseAddrPort("203.0.113.11:80")
	datagrams.Protocol = ProtocolUDPFresh
	reuse := lane(2000, CloseFIN, wide)
	reuse.Policy = "reuse:10s"
	brief, long := lane(100, CloseFIN, ""), lane(100, CloseFIN, "")
	brief.Lasts, long.Lasts = 5*time.Second, time.Hour
	for _, test := range []struct {
		name   string
		lanes  []Lane
		limits Limits
		want   []string // the word that each reason begins with
	}{
		{"rollout's own", []Lane{lane(100, CloseFIN, wide)}, limits, nil},
		{"conntrack just fits", []Lane{lane(1092, CloseFIN, wide)}, limits, nil},
		{"conntrack just not", []Lane{lane(1093, CloseFIN, wide)}, limits, []string{"conntrack"}},
		{"conntrack of two lanes", []Lane{lane(600, CloseFIN, wide), lane(600, CloseFIN, wide)}, limits, []string{"conntrack"}},
		{"rst costs a twelfth", []Lane{lane(5000, CloseRST, wide)}, limits, nil},
		{"reused tuples have one entry", []Lane{reuse}, limits, nil},
		{"no conntrack", []Lane{lane(5000, CloseFIN, wide)}, Limits{}, nil},
		{"descriptors", []Lane{lane(500, CloseFIN, wide)}, Limits{Descriptors: 1024}, []string{"descriptors"}},
		{"descriptors of open connections", []Lane{longLane(testLane(1).Target, 50, 900)}, Limits{Descriptors: 1024}, nil},
		{"too few for open connections", []Lane{longLane(testLane(1).Target, 50, 1000)}, Limits{Descriptors: 1024}, []string{"descriptors"}},
		{"no prefix", []Lane{lane(217, CloseFIN, "")}, limits, nil},
		{"no prefix, too often", []Lane{lane(218, CloseRST, "")}, limits, []string{"ports"}},
		{"no prefix for two lanes", []Lane{lane(110, CloseFIN, ""), lane(110, CloseFIN, "")}, limits, []string{"ports"}},
		{"no prefix for two targets, which share the ports", []Lane{lane(110, CloseFIN, ""), another}, limits, []string{"ports"}},
		{"no prefix for two protocols, which have their own", []Lane{lane(200, CloseFIN, ""), datagrams}, limits, nil},
		{"no prefix for two lanes and one that ends soon", []Lane{lane(100, CloseFIN, ""), lane(100, CloseFIN, ""), brief}, limits, nil},
		{"no prefix for three lanes", []Lane{lane(100, CloseFIN, ""), lane(100, CloseFIN, ""), long}, limits, []string{"ports"}},
		{"small prefix", []Lane{lane(218, CloseRST, "10.200.0.1/32")}, limits, []string{"ports"}},
		{"small prefix that fits", []Lane{lane(217, CloseRST, "10.200.0.1/32")}, limits, nil},
		{"shared prefix", []Lane{lane(110, CloseRST, "10.200.0.1/32"), lane(110, CloseRST, "10.200.0.1/32")}, limits, []string{"ports"}},
		{"everything", []Lane{lane(50000, CloseFIN, ""), lane(9000, CloseFIN, "10.200.0.1/32")}, Limits{1000, 1000},
			[]string{"conntrack", "descriptors", "ports", "ports"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			reasons := Preflight(test.lanes, test.limits)
			for _, r := range reasons {
				word, _, _ := strings.Cut(r, ":")
				got = append(got, word)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("%s\n%s", diff, strings.Join(reasons, "\n"))
			}
		})
	}
}

// The reason for too few five-tuples has the time for which the lanes do not reuse them.
func TestPortsWithinTheTimeOfThePolicy(t *testing.T) {
	short, fresh := testLane(20000), testLane(20000)
	short.SourcePrefix, fresh.SourcePrefix = netip.Prefix{}, netip.Prefix{}
	short.Policy = "reuse:10s"
	for _, test := range []struct {
		lanes []Lane
		want  []string
	}{{[]Lane{short}, []string{"10s"}}, {[]Lane{fresh}, []string{FreshFor.String()}}, {[]Lane{short, fresh}, []string{"10s", FreshFor.String()}}} {
		reasons := strings.Join(Preflight(test.lanes, Limits{}), "\n")
		var got []string
		for _, word := range strings.FieldsFunc(reasons, func(r rune) bool { return strings.ContainsRune(" ;,", r) }) {
			if _, err := time.ParseDuration(word); err == nil {
				got = append(got, word)
			}
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s\n%s", diff, reasons)
		}
	}
}

func TestLocalLimits(t *testing.T) {
	l, err := LocalLimits()
	if err != nil || l.Descriptors < 3 {
		t.Errorf("%+v, %v", l, err)
	}
}

// Each protocol is a kind of lane with a proof: it meets at least one of the known faults.
func TestEachProtocolIsAKindOfLane(t *testing.T) {
	kinds := record.LaneKinds()
	for _, protocol := range Protocols() {
		i := slices.IndexFunc(kinds, func(k record.LaneKind) bool { return k.Protocol == protocol })
		if i < 0 {
			t.Errorf("%s is no kind of lane in package record", protocol)
			continue
		}
		if !slices.ContainsFunc(record.ProofFaults(), func(f record.ProofFault) bool { return kinds[i].Blind(f) == "" }) {
			t.Errorf("%s meets no known fault", protocol)
		}
	}
	if len(kinds) != len(Protocols()) {
		t.Errorf("%d kinds of lanes, and %d protocols", len(kinds), len(Protocols()))
	}
}
