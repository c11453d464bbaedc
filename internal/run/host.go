package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/internal/guest"
	"github.com/hitless/hitless/lab/host"
	"github.com/hitless/hitless/lab/subject"
	"github.com/hitless/hitless/lab/vm"
	"github.com/hitless/hitless/reports"
)

// chooseKernel decides where the lab lives. The host is taken when it is asked for, or when the real clock is and the
// host can run the subject: the virtual clock, which is the default, needs the VM. An error is a UsageError.
func (o *Options) chooseKernel(ctx context.Context, plan *guest.Plan, spec subject.Spec) error {
	if o.Kernel == "vm" || o.Kernel == "auto" && o.Clock != "real" {
		return nil
	}
	err := o.tryHost(ctx, needs(*plan, spec))
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	switch {
	case err == nil:
		plan.Kernel, o.Kernel = guest.KernelHost, "host"
	case o.Kernel == "host":
		return usagef("--kernel host: %w; or use --kernel vm", err)
	default:
		o.message("taking a VM, because this machine's kernel will not do: " + err.Error())
	}
	return nil
}

// needs says what the subject wants of a kernel: its mode, for the modes that say so. Another proxy may call its mode
// anything.
func needs(plan guest.Plan, spec subject.Spec) string {
	if plan.NeedsSubjects() && slices.Contains(modes, spec.Mode) {
		return spec.Mode
	}
	return ""
}

// modes are those whose needs are known.
var modes = []string{"iptables", "nftables", "ipvs"}

// tryHost tries what is needed (see guest.TryScenario) in namespaces of this machine's kernel. It takes less than a second
// and leaves nothing behind.
func (o *Options) tryHost(ctx context.Context, need string) error {
	plan, err := guest.Plan{Scenario: guest.TryScenario, Kernel: guest.KernelHost, Parameters: map[string]string{"need": need}}.Marshal()
	if err != nil {
		return err
	}
	img := vm.NewImage()
	img.Add(guest.Program, o.Program, 0o755)
	switch need {
	case "iptables":
		err = addIptables(img)
	case "nftables":
		err = addTool(img, "/usr/sbin/nft", "nftables")
	}
	if err != nil {
		return err
	}
	outcome, err := host.Run(ctx, host.Job{Program: o.Program, Args: hostInit, Files: img.Files(), Plan: plan, Deadline: 30 * time.Second})
	if outcome == nil {
		return err
	}
	defer outcome.Close()
	if err != nil {
		return fmt.Errorf("%w: %q", err, lastLines(outcome.Console, 3))
	}
	left, err := lastWord(outcome.Region)
	switch {
	case err != nil:
		return err
	case !left.trailer:
		return fmt.Errorf("trying it came to no end: %q", lastLines(outcome.Console, 3))
	case left.reason != "":
		return errors.New(left.reason)
	}
	return nil
}

// lastWord reads how a guest ended.
func lastWord(region []byte) (left remains, err error) {
	for r := vm.NewFrameReader(region); ; {
		kind, payload, err := r.Next()
		if errors.Is(err, io.EOF) {
			return left, nil
		}
		if err != nil {
			return left, err
		}
		if kind == vm.FrameTrailer {
			left = remains{true, string(payload)}
		}
	}
}

// hostInit makes hitless the first process of a guest on the host.
var hostInit = []string{"guest", "init"}

// hostMemoryMB is about what a lab on the host takes, measured with three nodes.
func hostMemoryMB(controlPlane string) int {
	if controlPlane == "kube" {
		return 1536
	}
	return 768
}

func (o Options) prepareHost(img *vm.Image, plan guest.Plan, data []byte) (*prepared, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return nil, fmt.Errorf("asking for the kernel's release: %w", err)
	}
	p := &prepared{clock: "real", kernel: reports.Kernel{Kind: guest.KernelHost, Release: unix.ByteSliceToString(u.Release[:])}}
	digest, err := img.Digest()
	if err != nil {
		return nil, err
	}
	p.inputs = inputsDigest(string(data), digest, p.kernel.Release, p.clock)
	p.notes = append(p.notes, "the lab lived in namespaces of this machine's kernel; nothing makes such runs repeat")
	p.where = "starting in namespaces of this machine's kernel " + p.kernel.Release
	job := host.Job{Program: filepath.Clean(o.Program), Args: hostInit, Files: img.Files(), Plan: data, OwnCPU: plan.NeedsSubjects(),
		Deadline: o.deadline(plan), Line: func(line string) { o.guestLine(line) }}
	p.start = func(ctx context.Context, _ func([]byte)) (*vm.Outcome, error) { return host.Run(ctx, job) }
	return p, nil
}
