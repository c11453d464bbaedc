package reports

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/record"
)

// Picture is what WriteSVG draws: the time window of a scenario, events, and a bar for each path with its outages. Times are
// seconds since the start of the run.
type Picture struct {
	Title    string
	From, To float64
	Zero     float64 // the time that the axis calls 0
	Events   []PictureEvent
	Paths    []PicturePath
	Dropped  []int // attempts dropped in each second of the run, over all measured lanes
	Summary  []string
}

// PictureEvent is a labelled mark on the time axis.
type PictureEvent struct {
	At   float64
	Text string
}

// PicturePath is a lane over one node.
type PicturePath struct {
	Name    string
	Outages []PictureOutage
	Away    []PictureSpan // times in which the load balancer did not send the lane's connections to the node
}

// PictureSpan is an interval.
type PictureSpan struct{ From, To float64 }

// PictureOutage is an interval in which attempts failed.
type PictureOutage struct {
	From, To float64
	Delayed  bool // no attempt was dropped
}

// PictureOf returns the picture of a run's scenario phase, with two seconds before it and two after the last outage in it.
func PictureOf(r *analysis.Report) Picture {
	p := Picture{Title: fmt.Sprintf("%s, %s, seed %d", r.SubjectText(), r.Run.Scenario, r.Run.Seed), To: r.Run.Duration}
	for _, e := range r.Events {
		switch {
		case e.Kind != record.KindPhase:
		case e.Object == "scenario":
			p.From, p.Zero = max(0, e.At-2), e.At
		case e.Object == "settle":
			p.To = e.At
		}
	}
	p.Dropped = make([]int, int(r.Run.Duration)+1)
	for _, l := range r.Lanes {
		for i, n := range l.DroppedPerSecond {
			if i < len(p.Dropped) {
				p.Dropped[i] += n
			}
		}
		p.addPaths(r, l, len(r.Lanes) > 1)
	}
	p.Events = pictureEvents(r, p.From, p.To)
	p.Summary = strings.Split(strings.TrimSpace(lossText(r)), "\n")
	return p
}

func (p *Picture) addPaths(r *analysis.Report, l analysis.LaneReport, named bool) {
	for _, path := range l.Paths {
		row := PicturePath{Name: analysis.NodeText(path.Node)}
		switch {
		case named && path.Node == "" && len(l.Paths) == 1:
			row.Name = l.Name
		case named:
			row.Name = l.Name + " " + row.Name
		}
		for _, o := range l.Outages {
			if o.Node == path.Node {
				row.Outages = append(row.Outages, PictureOutage{From: o.From, To: o.To + 1/max(l.Rate, 1), Delayed: o.Failed() == o.Classes[record.Delayed.String()]})
			}
		}
		row.Away = awayFrom(r, l, path.Node)
		p.Paths = append(p.Paths, row)
	}
}

// awayFrom are the times from the first membership of a lane's address on in which the load balancer did not send its connections to a node. There
// are none for a path without a node.
func awayFrom(r *analysis.Report, l analysis.LaneReport, node string) (away []PictureSpan) {
	out := false
	for _, e := range r.Events {
		m := nodesOf.FindStringSubmatch(e.Text)
		if e.Kind != record.KindMembership || m == nil || node == "" || !strings.Contains(e.Text, " at "+l.Target+" ") {
			continue
		}
		was := out
		switch out = !slices.Contains(nodesIn(m[1]), node); {
		case out && !was:
			away = append(away, PictureSpan{e.At, r.Run.Duration})
		case was && !out:
			away[len(away)-1].To = e.At
		}
	}
	return away
}

// nodesIn are the nodes in the text of a membership.
func nodesIn(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
}

// report.json has events as text; these find the state of a pod and the nodes of a membership in it.
var (
	podState = regexp.MustCompile(`^pod \S+ (?:is )?(ready|terminating|exited)\b`)
	nodesOf  = regexp.MustCompile(`\bgoes to (.+?)(?: \(of .*\))?$`)
)

// pictureEvents returns the steps of the scenario, states of pods, what proxies did, and membership changes.
func pictureEvents(r *analysis.Report, from, to float64) []PictureEvent {
	var marks []PictureEvent
	for _, e := range r.Events {
		text := ""
		switch e.Kind {
		case record.KindStep:
			if e.Text == e.Object || strings.HasSuffix(e.Text, " begins") {
				text = e.Object
			}
		case record.KindPod:
			if m := podState.FindStringSubmatch(e.Text); m != nil {
				text = "pod on " + e.Node + " " + m[1]
			}
		case record.KindProxy:
			what, _, _ := strings.Cut(e.Text, ":")
			text = e.Node + ": " + what
		case record.KindMembership:
			if m := nodesOf.FindStringSubmatch(e.Text); m != nil {
				text = "load balancer: " + strings.Join(nodesIn(m[1]), ", ")
			}
		}
		if text != "" && e.At >= from && e.At <= to {
			marks = append(marks, PictureEvent{e.At, text})
		}
	}
	return marks
}
