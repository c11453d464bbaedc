//go:build linux

package site

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/internal/guest"
	"github.com/hitless/hitless/lab/build"
	"github.com/hitless/hitless/lab/host"
	"github.com/hitless/hitless/lab/tools"
	"github.com/hitless/hitless/lab/vm"
	"github.com/hitless/hitless/record"
)

// Host is a set of namespaces of this machine's kernel, with the real clock.
type Host struct {
	*lab
	job host.Job
}

// Prepare collects the files of the guest.
func (h *Host) Prepare(ctx context.Context) error {
	if err := h.prepare(); err != nil {
		return err
	}
	img, err := h.image(ctx)
	if err != nil {
		return err
	}
	data, err := h.plan.Marshal()
	if err != nil {
		return err
	}
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return fmt.Errorf("reading the release of the kernel: %w", err)
	}
	h.clock, h.kernel = "real", record.Kernel{Kind: guest.KernelHost, Release: unix.ByteSliceToString(u.Release[:])}
	digest, err := img.Digest()
	if err != nil {
		return err
	}
	h.inputs = inputsDigest(string(data), digest, h.kernel.Release, h.clock)
	h.notes = append(h.notes, "the lab ran in namespaces of this machine's kernel; such runs are not repeatable")
	h.job = host.Job{Program: filepath.Clean(h.Program), Args: hostInit, Files: img.Files(), Plan: data, OwnCPU: h.plan.NeedsSubjects(),
		Deadline: h.Deadline, Line: func(line string) { h.guestLine(line) }}
	return nil
}

// World starts the guest and waits for its end.
func (h *Host) World(ctx context.Context) (err error) {
	if err := h.clear(); err != nil {
		return err
	}
	h.message("starting in namespaces of this machine's kernel " + h.kernel.Release)
	h.outcome, err = host.Run(ctx, h.job)
	return err
}

// hostInit are the arguments of hitless as the first process of a guest on the host.
var hostInit = []string{"guest", "init"}

// hostOutside are the arguments of hitless as the process of a network namespace outside of a VM.
var hostOutside = []string{"guest", "outside"}

func onHost(l *lab) Site { return &Host{lab: l} }

// tryHost tests whether this machine's kernel can run the lab.
func (l *lab) tryHost(ctx context.Context) error {
	if err := l.checkHostModules(); err != nil {
		return err
	}
	return TryHost(ctx, l.Program, l.hostNeeds(), l.fetchTools)
}

// hostNeeds returns what the subject needs of the kernel: its mode, if it is one of HostModes. Other proxies name their modes
// freely.
func (l *lab) hostNeeds() string {
	if l.plan.NeedsSubjects() && slices.Contains(HostModes, l.spec.Mode) {
		return l.spec.Mode
	}
	return ""
}

// checkHostModules returns an error that names the modules of the subject's file that this machine's kernel has neither loaded nor built
// in: a lab on the host loads none. A kernel without a list of what it has built in is not checked.
func (l *lab) checkHostModules() error {
	if l.plan.Exec == nil {
		return nil
	}
	builtin, err := vm.HostBuiltin()
	if err != nil {
		return nil
	}
	var missing []string
	for _, name := range l.plan.Exec.Modules {
		if _, err := os.Stat(filepath.Join(loadedModules, name)); err != nil && !builtin[name] {
			missing = append(missing, name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("this machine's kernel has not loaded %s, which modules: of %s names; `modprobe -a %s` as root loads it",
		strings.Join(missing, ", "), filepath.Base(l.plan.Exec.Pack.Source), strings.Join(missing, " "))
}

// loadedModules is the kernel's folder with the modules that are loaded.
const loadedModules = "/sys/module"

// TryHost tests whether namespaces of this machine's kernel support what is needed (see guest.TryScenario). program is the file of
// hitless, and get returns the tools that the test of iptables and of nftables needs. The test takes less than a second and leaves nothing
// behind.
func TryHost(ctx context.Context, program, need string, get func(context.Context) (tools.Set, error)) error {
	if p := thisPlatform(); !p.guests() {
		return fmt.Errorf("the programs of a lab are for linux/%s, and this machine is %s/%s", build.Architecture, p.os, p.arch)
	}
	plan, err := guest.Plan{Scenario: guest.TryScenario, Kernel: guest.KernelHost, Parameters: map[string]string{"need": need}}.Marshal()
	if err != nil {
		return err
	}
	img := vm.NewImage()
	if err := addHitless(img, program, ""); err != nil {
		return err
	}
	p := &packer{img: img, fetch: get}
	switch need {
	case "iptables":
		err = p.addIptables(ctx)
	case "nftables":
		err = p.addTools(ctx, "nft")
	}
	if err != nil {
		return err
	}
	if err := p.addLibraries(); err != nil {
		return err
	}
	outcome, err := host.Run(ctx, host.Job{Program: program, Args: hostInit, Files: img.Files(), Plan: plan, Deadline: 30 * time.Second})
	if outcome == nil {
		return err
	}
	defer outcome.Close()
	if err != nil {
		return fmt.Errorf("%w: %q", err, lastLines(outcome.Console, 3))
	}
	end, err := readEnding(outcome.Region)
	switch {
	case err != nil:
		return err
	case !end.trailer:
		return fmt.Errorf("the test did not end: %q", lastLines(outcome.Console, 3))
	case end.reason != "":
		return errors.New(end.reason)
	}
	return nil
}
