//go:build linux

package guest

import (
	"encoding/json"
	"time"

	"github.com/hitless/hitless/lab"
	"github.com/hitless/hitless/lab/topology"
	"github.com/hitless/hitless/observers/capture"
	"github.com/hitless/hitless/record"
)

// startCapture captures packets at the client and at each node, if the plan says so. The function that it returns ends the
// capture and saves it, with the counters of the client's kernel.
func startCapture(l *lab.Lab, plan Plan, r *recorder, now func() time.Duration) (save func() error, err error) {
	if !plan.Capture {
		return func() error { return nil }, nil
	}
	places := []capture.Place{placeToCapture("client", l.Net.Client)}
	for _, n := range l.Net.Nodes {
		places = append(places, placeToCapture(n.Name, n.Namespace))
	}
	client := places[0]
	before, err := capture.Counted(client)
	if err != nil {
		return nil, err
	}
	c, err := capture.Start(places, now)
	if err != nil {
		return nil, err
	}
	return func() error {
		data, err := c.Stop()
		if err != nil {
			return err
		}
		r.file(record.CaptureFile, data)
		after, err := capture.Counted(client)
		if err != nil {
			return err
		}
		if data, err = json.Marshal(record.Counters{Opened: after.Opened - before.Opened, Repeated: after.Repeated - before.Repeated}); err == nil {
			r.file(record.CountersFile, data)
		}
		return err
	}, nil
}

func placeToCapture(name string, ns *topology.Namespace) capture.Place {
	return capture.Place{Name: name, Link: "eth0", Do: ns.Do, Generation: ns.Generation}
}
