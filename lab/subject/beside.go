package subject

import (
	"errors"
	"fmt"
	"slices"

	"github.com/hitless/hitless/lab/procs"
)

// Beside starts another program of the lab, by the name of its Spec, on a node where the subject runs, as one that somebody left
// running there. The ports of the node are the subject's, so nobody can ask it whether it is well: alive is an error with its last
// lines once it has ended.
func (f *Fleet) Beside(name, subject string) (alive func() error, err error) {
	node, err := f.cfg.Net.Node(name)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(f.cfg.Programs, func(p Program) bool { return p.Spec.String() == subject })
	if i < 0 {
		return nil, fmt.Errorf("this lab has no %s", subject)
	}
	run := f.cfg.Programs[i]
	if run.Spec.Exec != nil {
		return nil, errors.New("a proxy that a file describes can be the subject, and not a second one beside it")
	}
	p, err := f.cfg.Procs.Start(procs.Spec{Name: "second-" + name, Path: run.Path, Enter: node.Enter,
		Args: run.Spec.Args(name, f.cfg.Kubeconfig, run.Fallback), Env: slices.Concat([]string{"GOMAXPROCS=4"}, f.cfg.Env)})
	if err != nil {
		return nil, err
	}
	f.recordOf(run.Spec, name, "second", run.Spec.String()+" started beside "+f.spec(name).String())
	return func() error {
		if p.Running() {
			return nil
		}
		return fmt.Errorf("%s on %s ended: %s; its last lines:\n%s", run.Spec, name, p.ExitText(), f.cfg.Procs.Tail("second-"+name, 8))
	}, nil
}
