package run

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Clean puts back what runs have changed on a cluster and is not theirs, deletes the namespaces that they have made, also those of
// runs that were killed, and waits for each to be gone, within at most. It says what it does line by line. The error names what
// is left.
func Clean(ctx context.Context, l Live, within time.Duration, say func(string)) error {
	if !l.Named() {
		return usagef("which cluster? name its kubeconfig with --kubeconfig FILE")
	}
	c, err := l.open()
	if err != nil {
		return err
	}
	found, err := cleanDebts(ctx, c, l.DryRun, say)
	left := []error{err}
	spaces, err := c.Spaces(ctx)
	if err != nil {
		return errors.Join(append(left, err)...)
	}
	for _, ns := range spaces {
		if l.DryRun {
			say(fmt.Sprintf("%s, made %s", ns.Name, ns.CreationTimestamp.UTC().Format(time.RFC3339)))
			continue
		}
		if err := c.Remove(ctx, ns.Name, within); err != nil {
			left = append(left, err)
			continue
		}
		say("deleted the namespace " + ns.Name)
	}
	if len(spaces) == 0 && found == 0 && left[0] == nil {
		say("nothing is left of any run")
	}
	return errors.Join(left...)
}
