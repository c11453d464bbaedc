package subject

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hitless/hitless/lab/subject/failing"
)

// toolNames are the programs with which kube-proxy writes its rules, in all modes and versions. Those that only read, such as iptables-save,
// never fail.
var toolNames = []string{"iptables", "iptables-restore", "ip6tables", "ip6tables-restore", "nft", "ipset"}

// CheckTools returns a LackError when hitless cannot make the subject's syncs fail: it must write its rules with programs that it finds
// in its PATH.
func (s Spec) CheckTools() error {
	why := ""
	switch {
	case s.Exec == nil && s.Name == "kube-proxy":
	case s.Exec == nil:
		why = "it writes its rules over netlink, without such a program"
	case !slices.Contains(Modes(), s.Tables()):
		why = fmt.Sprintf("its mode is %q, and hitless knows the programs of the modes %s only", s.Tables(), strings.Join(Modes(), ", "))
	case slices.ContainsFunc(s.Exec.Env, func(e string) bool { return strings.HasPrefix(e, "PATH=") }):
		why = "the env: of its file sets a PATH; leave PATH out"
	}
	if why == "" {
		return nil
	}
	return &LackError{Reason: fmt.Sprintf("proxy block: hitless makes the programs %s fail in the place of the proxy's own, and cannot do that with %s: %s; "+
		"give a kube-proxy, such as kube-proxy@v1.37.1/nftables", strings.Join(toolNames, ", "), s, why)}
}

// toolbox is a directory with two sets of the proxy's tools: those that work and those that fail. A link in it leads to the set that the proxy
// finds in its PATH, so that one rename changes all of them.
type toolbox string

// The entries of a toolbox, besides the log of the failed calls.
const (
	currentTools = "current" // the link; a directory of the proxy's PATH
	workingTools = "working"
	failingTools = "failing"
	failingTool  = "tool" // the program to which all failing tools lead
)

// path is the directory for the PATH of the proxy.
func (b toolbox) path() string { return filepath.Join(string(b), currentTools) }

// make fills the toolbox anew with the tools that this machine has, and lets them work. program is hitless.
func (b toolbox) make(program string) error {
	if err := os.RemoveAll(string(b)); err != nil {
		return err
	}
	for _, dir := range []string{workingTools, failingTools} {
		if err := os.MkdirAll(filepath.Join(string(b), dir), 0o755); err != nil {
			return err
		}
	}
	script := "#!" + program + " " + failing.Word + "\n"
	if err := os.WriteFile(filepath.Join(string(b), failingTool), []byte(script), 0o755); err != nil {
		return err
	}
	for _, name := range toolNames {
		tool, err := exec.LookPath(name)
		if errors.Is(err, exec.ErrNotFound) {
			continue
		}
		err = errors.Join(err, os.Symlink(tool, filepath.Join(string(b), workingTools, name)),
			os.Symlink(filepath.Join("..", failingTool), filepath.Join(string(b), failingTools, name)))
		if err != nil {
			return err
		}
	}
	return b.point(workingTools)
}

// point makes the proxy find one of the sets from now on.
func (b toolbox) point(set string) error {
	next := b.path() + ".next"
	if err := os.Symlink(set, next); err != nil {
		return err
	}
	return os.Rename(next, b.path())
}

// change makes the proxy find another set. It is an error if it finds that one already.
func (b toolbox) change(to string) error {
	now, err := os.Readlink(b.path())
	if err != nil {
		return fmt.Errorf("finding the tools of the proxy: %w", err)
	}
	if now == to {
		return fmt.Errorf("the tools of the proxy are %s already", to)
	}
	return b.point(to)
}
