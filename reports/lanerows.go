package reports

import (
	"slices"
	"strings"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/reports/chart"
)

// The letters of a row, and their order in the legend.
const laneLetters = "█▓▒×·■"

var laneWords = map[rune]string{'█': "ok", '▓': "dropped", '▒': "delayed", '×': "the probe's own fault", '·': "no attempt", '■': "answers"}

// mostPodRows is how many lines of pods are drawn at most.
const mostPodRows = 6

type laneRow struct{ name, text string }

// allRows are the lines of the measured lanes and of those to a port without a Service: a lane's paths, and below them the pods that answered.
// A lane whose pods have no room has none of them. The lanes of flows get room first.
func allRows(a *analysis.Analysis, x chart.Axis) (rows []laneRow) {
	lanes := slices.DeleteFunc(slices.Clone(a.Lanes), func(l *analysis.Lane) bool { return l.Control && l.Role != record.RoleUnserved })
	pods, room := make([][]laneRow, len(lanes)), mostPodRows
	for _, flows := range []bool{true, false} {
		for i, l := range lanes {
			if (l.Protocol == record.ProtocolSticky) != flows {
				continue
			}
			if of := podRows(a, x, l); len(of) <= room {
				pods[i], room = of, room-len(of)
			}
		}
	}
	for i, l := range lanes {
		rows = append(append(rows, pathRows(a, x, l, len(lanes) > 1)...), pods[i]...)
	}
	return rows
}

// pathRows are the lines of a lane's paths, in order of the nodes' names. Their own names have that of the lane where there are several.
func pathRows(a *analysis.Analysis, x chart.Axis, l *analysis.Lane, several bool) (rows []laneRow) {
	byNode := map[uint16]*chart.Tally{}
	for i := range l.Records {
		if r := &l.Records[i]; r.Intended >= x.From && r.Intended < x.To {
			if byNode[r.Node] == nil {
				byNode[r.Node] = chart.NewTally(x.Buckets)
			}
			byNode[r.Node].Add(x.Bucket(r.Intended), r)
		}
	}
	for node, n := range byNode {
		name := analysis.NodeText(a.Nodes[node])
		if several {
			name = l.Name + " " + name
		}
		rows = append(rows, laneRow{name, pathText(n)})
	}
	slices.SortFunc(rows, func(p, q laneRow) int { return strings.Compare(p.name, q.name) })
	return rows
}

// pathText has a letter for each column: the worst that its attempts came to.
func pathText(n *chart.Tally) string {
	var b strings.Builder
	for i := range n.Attempts {
		switch {
		case n.Attempts[i] == 0:
			b.WriteRune('·')
		case n.Dropped[i] > 0:
			b.WriteRune('▓')
		case n.Delayed[i] > 0:
			b.WriteRune('▒')
		case n.Probe[i] > 0:
			b.WriteRune('×')
		default:
			b.WriteRune('█')
		}
	}
	return b.String()
}

// podRows are the lines of the pods that answered a lane, with a letter in each column in which they did. They are in the order of their first
// answers.
func podRows(a *analysis.Analysis, x chart.Axis, l *analysis.Lane) (rows []laneRow) {
	var pods []uint32
	columns := map[uint32][]rune{}
	for i := range l.Records {
		r := &l.Records[i]
		if r.Class.Dropped() || r.Backend == 0 || r.Intended < x.From || r.Intended >= x.To {
			continue
		}
		if columns[r.Backend] == nil {
			columns[r.Backend] = []rune(strings.Repeat(" ", x.Buckets))
			pods = append(pods, r.Backend)
		}
		columns[r.Backend][x.Bucket(r.Intended)] = '■'
	}
	for _, pod := range pods {
		rows = append(rows, laneRow{"  by " + a.Backends[pod].Name, string(columns[pod])})
	}
	return rows
}
