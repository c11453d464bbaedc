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

// programNames are the programs that kube-proxy writes its rules with, in all modes and versions. Those that only read, such as
// iptables-save, never fail.
var programNames = []string{"iptables", "iptables-restore", "ip6tables", "ip6tables-restore", "nft", "ipset"}

// CheckBlock returns a LackError when hitless cannot make the subject's syncs fail: it must write its rules with programs that it finds
// in its PATH.
func (s Spec) CheckBlock() error {
	why := ""
	switch {
	case s.Exec == nil && s.Name == KubeProxy:
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
		"give a kube-proxy, such as kube-proxy@v1.37.1/nftables", strings.Join(programNames, ", "), s, why)}
}

// programSets is a directory with two sets of the proxy's programs: those that work and those that fail. A link in it leads to the set that
// the proxy finds in its PATH, so that one rename changes all of them.
type programSets string

// The entries of the directory, besides the log of the failed calls.
const (
	currentSet     = "current" // the link; a directory of the proxy's PATH
	workingSet     = "working"
	failingSet     = "failing"
	failingProgram = "program" // to which all failing programs lead
	hitlessLink    = "hitless" // leads to hitless
)

// path is the directory for the PATH of the proxy.
func (d programSets) path() string { return filepath.Join(string(d), currentSet) }

// make fills the directory anew with the programs that this machine has, and lets them work. hitless is the path of this program.
func (d programSets) make(hitless string) error {
	if err := os.RemoveAll(string(d)); err != nil {
		return err
	}
	for _, set := range []string{workingSet, failingSet} {
		if err := os.MkdirAll(filepath.Join(string(d), set), 0o755); err != nil {
			return err
		}
	}
	if err := d.makeFailing(hitless); err != nil {
		return err
	}
	for _, name := range programNames {
		program, err := exec.LookPath(name)
		if errors.Is(err, exec.ErrNotFound) {
			continue
		}
		err = errors.Join(err, os.Symlink(program, filepath.Join(string(d), workingSet, name)),
			os.Symlink(filepath.Join("..", failingProgram), filepath.Join(string(d), failingSet, name)))
		if err != nil {
			return err
		}
	}
	return d.point(workingSet)
}

// longestInterpreter is the length of a first line `#!…` that each kernel reads; before 5.1 it cuts a longer one without an error.
const longestInterpreter = 126

// makeFailing makes the program that fails. It names hitless by a link, because a first line can have neither blanks nor a long path.
func (d programSets) makeFailing(hitless string) error {
	link := filepath.Join(string(d), hitlessLink)
	line := "#!" + link + " " + failing.Word
	if len(line) > longestInterpreter || strings.ContainsAny(link, " \t\n") {
		return fmt.Errorf("%q cannot be the first line of a script: a kernel accepts %d bytes without other blanks; give a shorter directory without blanks",
			line, longestInterpreter)
	}
	return errors.Join(os.Symlink(hitless, link), os.WriteFile(filepath.Join(string(d), failingProgram), []byte(line+"\n"), 0o755))
}

// point makes the proxy find one of the sets from now on.
func (d programSets) point(set string) error {
	next := d.path() + ".next"
	if err := os.Symlink(set, next); err != nil {
		return err
	}
	return os.Rename(next, d.path())
}

// change makes the proxy find another set. It is an error if it finds that one already.
func (d programSets) change(to string) error {
	now, err := os.Readlink(d.path())
	if err != nil {
		return fmt.Errorf("finding the proxy's programs: %w", err)
	}
	if now == to {
		return fmt.Errorf("the proxy's programs are %s already", to)
	}
	return d.point(to)
}
