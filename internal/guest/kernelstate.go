//go:build linux

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

// stopAndDump freezes the proxies and writes the network state of all namespaces to files in the directory at-T. The rest of the
// lab keeps running meanwhile; each file has the time of its reading.
func stopAndDump(ctx context.Context, l *lab.Lab, r *recorder, now func() time.Duration) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), time.Minute) // the end of the scenario does not end the dumps
	defer stop()
	dir := KernelStateDir(r.stopAt)
	for _, n := range l.Net.Nodes {
		if err := l.Proxies.Freeze(n.Name); err != nil {
			r.file(path.Join(dir, n.Name, "proxy.txt"), []byte(err.Error()+"\n")) // most likely no proxy runs
		}
	}
	logs, _ := filepath.Glob(filepath.Join(stateDir, "logs", "*.log")) // the pattern is valid
	for _, file := range logs {
		if text, err := os.ReadFile(file); err == nil {
			r.file(path.Join(dir, "logs", filepath.Base(file)), text)
		}
	}
	namespaces := []*topology.Namespace{l.Net.Client, l.Net.Balancer}
	names := []string{"client", "balancer"}
	for _, n := range l.Net.Nodes {
		namespaces, names = append(namespaces, n.Namespace), append(names, n.Name)
	}
	for i, ns := range namespaces {
		for _, dump := range observers.Dumps() {
			at := now()
			var text []byte
			err := ns.Do(func() (err error) {
				text, err = dump.Read(ctx)
				return err
			})
			switch {
			case errors.Is(err, fs.ErrNotExist), errors.Is(err, exec.ErrNotFound), err == nil && len(text) == 0:
				continue // no such state
			case err != nil:
				text = append(text, ("reading it failed: " + err.Error() + "\n")...)
			}
			head := fmt.Sprintf("# %s of %s at %.6fs of the run\n", dump.Title, names[i], at.Seconds())
			r.file(path.Join(dir, names[i], dump.File), append([]byte(head), text...))
		}
	}
}
