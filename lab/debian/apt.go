// Package debian gets packages of Debian: package lists by apt, which verifies them by Debian's signatures; files from a mirror; and the
// content of packages, without dpkg.
package debian

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/hitless/hitless/internal/cache"
)

// Architecture is that of all packages: guests have x86-64 CPUs, whatever this machine has.
const Architecture = "amd64"

// Suite is a release of Debian.
type Suite struct {
	Name     string // as users write it: debian-12
	Codename string
	// Rolling says that the release changes until it is finished. It has no security updates of its own.
	Rolling bool
}

// Suites are the releases that hitless knows, from the oldest on.
var Suites = []Suite{{"debian-11", "bullseye", false}, {"debian-12", "bookworm", false}, {"debian-13", "trixie", false}, {"debian-sid", "sid", true}}

// Apt calls apt's programs with package lists. The zero value has those of this machine.
type Apt struct {
	config string // of private package lists; empty for those of this machine
}

// Name is the folder of private package lists; empty for those of this machine.
func (a Apt) Name() string {
	if a.config == "" {
		return ""
	}
	return filepath.Base(filepath.Dir(a.config))
}

func (a Apt) output(ctx context.Context, dir, program string, args ...string) (string, error) {
	if a.config != "" {
		args = append([]string{"-c", a.config}, args...)
	}
	return output(ctx, dir, program, args...)
}

// Show returns what the lists say of a package's newest version. The error wraps exec.ErrNotFound without apt.
func (a Apt) Show(ctx context.Context, name string) (string, error) {
	return a.output(ctx, "", "apt-cache", "show", "--no-all-versions", name)
}

// Download downloads the newest versions of packages into a directory and returns the files.
func (a Apt) Download(ctx context.Context, dir string, names ...string) ([]string, error) {
	if _, err := a.output(ctx, dir, "apt-get", append([]string{"download"}, names...)...); err != nil {
		return nil, err
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*.deb"))
	if len(files) != len(names) {
		return nil, fmt.Errorf("apt-get download left %d packages, want %d", len(files), len(names))
	}
	return files, nil
}

func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	out, err := cmd.Output()
	if ctx.Err() != nil {
		return "", fmt.Errorf("%s: %w", name, context.Cause(ctx))
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(exit.Stderr)))
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	return string(out), nil
}

// Field returns the value of the first line `key value`.
func Field(text, key string) string {
	for line := range strings.Lines(text) {
		if value, is := strings.CutPrefix(strings.TrimSpace(line), key); is {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// listsAge is the age from which private package lists are fetched again.
const listsAge = 24 * time.Hour

// Lists returns the package lists of the release with its security updates: those of this machine if it is one of them, else private ones
// in dir.
func (s Suite) Lists(ctx context.Context, dir string, progress func(string)) (Apt, error) {
	if s.Own() {
		return Apt{}, nil
	}
	return s.private(ctx, filepath.Join(dir, s.Name), true, progress)
}

// Own reports whether this machine has the release, for x86-64: its own package lists are then those of the release.
func (s Suite) Own() bool {
	own, err := os.ReadFile("/etc/os-release")
	return err == nil && Field(string(own), "VERSION_CODENAME=") == s.Codename && runtime.GOARCH == Architecture
}

// ReleaseLists returns private package lists of the release alone, in dir. Its packages change only with a point release.
func (s Suite) ReleaseLists(ctx context.Context, dir string, progress func(string)) (Apt, error) {
	return s.private(ctx, filepath.Join(dir, s.Name), false, progress)
}

func (s Suite) private(ctx context.Context, dir string, security bool, progress func(string)) (Apt, error) {
	lock, err := cache.Acquire(ctx, filepath.Join(dir, cache.LockName), func() { progress("waiting for another process that writes into " + dir) })
	if err != nil {
		return Apt{}, err
	}
	defer lock.Close()
	a := Apt{filepath.Join(dir, "apt.conf")}
	fetched := filepath.Join(dir, "fetched")
	info, err := os.Stat(fetched)
	if err == nil && time.Since(info.ModTime()) < listsAge {
		return a, nil
	}
	had := err == nil
	progress("fetching the package lists of " + s.Name)
	if err = s.update(ctx, a, dir, security); err == nil {
		return a, cache.WriteFile(fetched, nil)
	}
	if had && ctx.Err() == nil {
		progress(err.Error() + "; the older lists are used")
		return a, nil
	}
	return Apt{}, err
}

// keyring has the keys with which Debian signs its package lists.
const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// update fetches the lists. An index that fails is an error, unlike with apt-get's default.
func (s Suite) update(ctx context.Context, a Apt, dir string, security bool) error {
	if _, err := os.Stat(keyring); err != nil {
		return fmt.Errorf("the package lists of %s: their keys are missing: %w; `apt-get install debian-archive-keyring` installs them", s.Name, err)
	}
	m, err := findMirrors(ctx)
	if err != nil {
		return fmt.Errorf("the package lists of %s: %w", s.Name, err)
	}
	for _, private := range []string{"lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(dir, private), 0o755); err != nil {
			return err
		}
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	if err := errors.Join(cache.WriteFile(filepath.Join(dir, "sources.list"), []byte(s.sources(m, security))), cache.WriteFile(a.config, []byte(aptConfig(dir)))); err != nil {
		return err
	}
	if _, err := a.output(ctx, "", "apt-get", "update", "--error-on=any"); err != nil {
		return fmt.Errorf("fetching the package lists of %s: %w", s.Name, err)
	}
	return nil
}

// sources are the lines of sources.list.
func (s Suite) sources(m mirrors, security bool) string {
	line := func(mirror, codename string) string {
		return fmt.Sprintf("deb [target=Packages arch=%s signed-by=%s] %s %s main\n", Architecture, keyring, mirror, codename)
	}
	text := line(m.main, s.Codename)
	if security && m.security != "" && !s.Rolling {
		text += line(m.security, s.Codename+"-security")
	}
	return text
}

// aptConfig makes apt use lists below dir, and not what is installed here. This machine's proxies and its other settings stay, but not its
// hooks.
func aptConfig(dir string) string {
	return fmt.Sprintf(`Dir::State::lists %q;
Dir::State::status "/dev/null";
APT::Architecture "amd64";
APT::Architectures "amd64";
Dir::Cache %q;
Dir::Etc::sourcelist %q;
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Acquire::Languages "none";
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
`, filepath.Join(dir, "lists"), filepath.Join(dir, "cache"), filepath.Join(dir, "sources.list"))
}
