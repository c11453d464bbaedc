package lab

import (
	"context"
	"os/exec"
	"time"
)

// commandWithin bounds a command on a node.
const commandWithin = 30 * time.Second

// Command runs a program on a node to its end, and returns what it wrote. It is for what another program, or a person, does
// there; the proxy is the fleet's.
func (l *Lab) Command(ctx context.Context, name string, words ...string) (output string, err error) {
	node, err := l.Net.Node(name)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, commandWithin)
	defer cancel()
	err = node.Do(func() error {
		out, err := exec.CommandContext(ctx, words[0], words[1:]...).CombinedOutput()
		output = string(out)
		return err
	})
	return output, err
}
