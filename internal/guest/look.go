package guest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"time"

	"github.com/hitless/hitless/lab"
	"github.com/hitless/hitless/lab/topology"
	"github.com/hitless/hitless/observers"
)

// Stopped is how a run ends that was to stop and look.
const Stopped = "stopped, as was asked for"

// stopAndLook has the proxies stand still and writes what is in the kernels of the lab, as files of the folder at-T. Until then
// nothing was other than in a run that does not stop; what is done here takes time, which each file tells, and the rest of
// the lab goes on meanwhile.
func stopAndLook(ctx context.Context, l *lab.Lab, r *recorder, now func() time.Duration) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), time.Minute) // the end of the scenario is none of this
	defer stop()
	dir := LookDir(r.stopAt)
	for _, n := range l.Net.Nodes {
		if err := l.Proxies.Freeze(n.Name); err != nil {
			r.file(path.Join(dir, n.Name, "proxy.txt"), []byte(err.Error()+"\n")) // most likely it does not run
		}
	}
	logs, _ := filepath.Glob(filepath.Join(stateDir, "logs", "*.log")) // the pattern is none that fails
	for _, file := range logs {
		if text, err := os.ReadFile(file); err == nil {
			r.file(path.Join(dir, "logs", filepath.Base(file)), text)
		}
	}
	places := []*topology.Namespace{l.Net.Client, l.Net.Balancer}
	names := []string{"client", "balancer"}
	for _, n := range l.Net.Nodes {
		places, names = append(places, n.Namespace), append(names, n.Name)
	}
	for i, place := range places {
		for _, dump := range observers.Dumps() {
			at := now()
			var text []byte
			err := place.Do(func() (err error) {
				text, err = dump.Read(ctx)
				return err
			})
			switch {
			case errors.Is(err, fs.ErrNotExist), errors.Is(err, exec.ErrNotFound), err == nil && len(text) == 0:
				continue // there is none, or nothing in it
			case err != nil:
				text = append(text, ("reading it failed: " + err.Error() + "\n")...)
			}
			head := fmt.Sprintf("# %s of %s at %.6fs of the run\n", dump.Title, names[i], at.Seconds())
			r.file(path.Join(dir, names[i], dump.File), append([]byte(head), text...))
		}
	}
}

// LookDir is the folder of a run's folder in which is what was there at a time.
func LookDir(at time.Duration) string { return "at-" + at.String() }
