package site

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hitless/hitless/internal/guest"
	"github.com/hitless/hitless/internal/progress"
	"github.com/hitless/hitless/lab/build"
	"github.com/hitless/hitless/lab/compile"
	"github.com/hitless/hitless/lab/subject"
	"github.com/hitless/hitless/lab/tools"
	"github.com/hitless/hitless/lab/vm"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios"
)

// LabOptions are the options of runs in a lab, which is a VM or the host. Package run fills in defaults for zero values.
type LabOptions struct {
	Subject      string         // bundled
	ControlPlane string         // kube
	Kernel       string         // auto
	GuestKernel  string         // of the VM, see vm.ParseKernelChoice; empty for vm.DefaultKernel
	Clock        string         // auto
	Nodes        int            // 3
	Binaries     string         // folder of ready programs, instead of building or downloading them
	Programs     build.Programs // built
	Cache        string         // $HITLESS_CACHE, or hitless in the user's cache folder
	// StopAt is a time of the run at which it stops and writes the state of the kernels; 0 for none. It is not part of the plan:
	// until then the history is the same.
	StopAt time.Duration
	// Capture records the packets that open, close, refuse and reject connections, beside the history, in record.CaptureFile.
	Capture bool
	// Loop runs curl once a second beside the lanes, and writes its requests beside the history, in record.LoopFile.
	Loop bool
	// Cold boots the guest, instead of resuming a snapshot. The history is the same.
	Cold     bool
	MemoryMB int           // of the VM; 0 for what the control plane needs
	Deadline time.Duration // wall time at most; 0 for 15 minutes plus the scenario's own length
}

// lab is what VM and Host share.
type lab struct {
	Call
	LabOptions
	plan guest.Plan
	spec subject.Spec

	kernel        record.Kernel
	kernelPackage string
	clock         string
	inputs        string // digest
	program       string // digest of hitless
	programs      []programFacts
	tools         *tools.Set       // nil if the guest has none
	compiler      *compile.Service // for BPF programs; nil if the guest needs none
	notes         []string
	packed        []string    // SHA-256 of the packed files of a VM: those that boot, and the others
	outcome       *vm.Outcome // nil until the guest has ended
}

// NewLab returns a VM or, if the options ask for it, a Host. With kernel auto the host runs the real clock if it can run the
// subject and no kernel of a VM is named, and a VM everything else. Every error is a UsageError.
func NewLab(ctx context.Context, c Call, o LabOptions, plan guest.Plan, spec subject.Spec) (Site, error) {
	if err := CheckPlatform(); err != nil {
		return nil, err
	}
	l := &lab{Call: c, LabOptions: o, plan: plan, spec: spec}
	if err := l.chooseKernel(ctx); err != nil {
		return nil, err
	}
	if err := l.checkStop(); err != nil {
		return nil, err
	}
	if l.plan.Kernel == guest.KernelHost {
		return onHost(l), nil
	}
	return &VM{lab: l}, nil
}

// chooseKernel sets the kernel of the plan and of the options.
func (l *lab) chooseKernel(ctx context.Context) error {
	if l.Kernel == "vm" || l.Kernel == "auto" && (l.Clock != "real" || l.GuestKernel != "") {
		return nil
	}
	err := CheckHostPlatform()
	if err == nil {
		err = l.plan.CheckHost()
	}
	if err == nil {
		err = l.tryHost(ctx)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	switch {
	case err == nil:
		l.plan.Kernel, l.Kernel = guest.KernelHost, "host"
	case l.Kernel == "host":
		return Usagef("--kernel host: %w; or use --kernel vm", err)
	default:
		l.message("taking a VM, because the host cannot run the lab: " + err.Error())
	}
	return nil
}

// HostModes are the modes of proxies whose needs TryHost can check.
var HostModes = []string{"iptables", "nftables", "ipvs"}

// checkStop refuses a stop where runs are not deterministic.
func (l *lab) checkStop() error {
	switch {
	case l.StopAt < 0:
		return Usagef("--stop-at %s: give a time of the run, such as 35s, as its report has them", l.StopAt)
	case l.StopAt > 0 && (l.plan.Kernel == guest.KernelHost || l.Clock == "real"):
		return Usagef("--stop-at %s needs the virtual clock, with which a run is the same each time; leave --kernel and --clock out", l.StopAt)
	}
	return nil
}

// prepare makes the folder and checks this machine.
func (l *lab) prepare() error {
	if err := l.claim(l.LabOptions.Command(l.Call, filepath.Base)); err != nil {
		return err
	}
	return l.checkMachine()
}

// image is an image with the programs of the plan.
func (l *lab) image(ctx context.Context) (img *vm.Image, err error) {
	img = vm.NewImage()
	if l.program, err = l.programSha256(ctx); err != nil {
		return nil, err
	}
	if err := addHitless(img, l.Program, l.program); err != nil {
		return nil, err
	}
	if l.plan.NeedsSubjects() {
		return img, l.addPrograms(ctx, img)
	}
	return img, nil
}

// guestPrefix begins the lines of a console that package vm writes about the guest.
const guestPrefix = "hitless: "

// guestLine reports what a line of a guest's console holds, and returns its event. Lines of the kernel are not reported.
func (c Call) guestLine(line string) progress.Event {
	e, ok := progress.Parse(line)
	if text, about := strings.CutPrefix(line, guestPrefix); about {
		e, ok = progress.Event{Kind: progress.Message, Text: text}, true
	}
	if ok {
		c.report(e)
	}
	return e
}

// lastLines returns the last n lines of a console, with events as text and without measurements.
func lastLines(lines []string, n int) []string {
	var all []string
	for _, line := range lines {
		switch e, ok := progress.Parse(line); {
		case !ok:
			all = append(all, line)
		case e.Kind != progress.Measurement:
			all = append(all, e.String())
		}
	}
	return all[max(0, len(all)-n):]
}

// Command is the command that repeats the run, with the files under their paths by path. That of a record has no folders, which do not affect
// the run (filepath.Base).
func (o LabOptions) Command(c Call, path func(file string) string) string {
	named := o.Subject
	if file, is := strings.CutPrefix(named, "exec:"); is {
		named = "exec:" + path(file)
	}
	words := append(c.verb(path), "--subject", record.Word(named), "--seed", fmt.Sprint(c.Seed))
	return strings.Join(append(words, o.Words(c, path)...), " ")
}

// Repeat is Command from any folder of this machine. It is empty if Command has no file. It is no part of the history, which must not
// depend on where files are.
func (o LabOptions) Repeat(c Call) string {
	text := o.Command(c, absolute)
	if text == o.Command(c, filepath.Base) {
		return ""
	}
	return text
}

// absolute is the absolute path of a file.
func absolute(file string) string {
	if path, err := filepath.Abs(file); err == nil {
		return path
	}
	return file
}

// Words are the options that runs and comparisons share, where they are not the defaults.
func (o LabOptions) Words(c Call, path func(file string) string) []string {
	var words []string
	if o.ControlPlane != record.ControlKube {
		words = append(words, "--controlplane", o.ControlPlane)
	}
	if o.Programs == build.Released {
		words = append(words, "--programs", string(o.Programs))
	}
	if o.Kernel == "vm" || o.Kernel == "host" {
		words = append(words, "--kernel", o.Kernel)
	}
	if kernel, err := vm.ParseKernelChoice(o.GuestKernel); err == nil && !kernel.Default() {
		words = append(words, "--guest-kernel", record.Word(kernel.Text(path)))
	}
	if o.Clock == "real" {
		words = append(words, "--clock real")
	}
	if o.Capture {
		words = append(words, "--capture")
	}
	if o.Loop {
		words = append(words, "--loop")
	}
	return append(append(words, c.nodesOption(o.Nodes)...), c.options(path)...)
}

// Header is the header of the record. It is complete when the site is prepared.
func (l *lab) Header() record.Run {
	recorder := scenarios.RecordMode.Of(l.plan.Parameters)
	if recorder != record.RecordThinned {
		recorder = ""
	}
	return record.Run{
		Record:        recorder,
		SchemaVersion: record.HistoryVersion, Scenario: l.plan.Scenario, Parameters: l.plan.Parameters, Seed: l.plan.Seed,
		Kernel: l.kernel, Clock: l.clock,
		Subject:      record.Subject{Name: l.spec.Name, Version: l.spec.Version, Mode: l.spec.Mode, Flags: l.spec.Flags},
		ControlPlane: l.plan.ControlPlane, Nodes: NodeNames(l.plan.Nodes), InputsSha256: l.inputs, ProgramSha256: l.program, Command: l.LabOptions.Command(l.Call, filepath.Base),
		Budget: l.Budget, Programs: l.plan.Programs, Tools: l.replacedTools(),
	}
}

// NodeNames are the names of the n nodes of a lab.
func NodeNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("node-%d", i+1)
	}
	return names
}

// writeHost writes host.json. The outcome is empty while the guest runs.
func (l *lab) writeHost(outcome *vm.Outcome) error {
	started := time.Now().Add(-outcome.Wall).UTC().Format(time.RFC3339)
	return writeJSON(filepath.Join(l.dir(), record.HostFile), hostFacts{Command: os.Args, Repeat: l.Repeat(l.Call), Out: l.Out, Started: started, WallSeconds: outcome.Wall.Seconds(),
		CPUSeconds: outcome.CPUTime.Seconds(), CPU: outcome.CPU, QEMU: outcome.Args, Kernel: l.kernelPackage, Packed: l.packed, Tools: l.toolPackages(), Programs: l.programs, Notes: l.notes})
}

// toolPackages are the packages of the guest's tools; none if the guest has no tools.
func (l *lab) toolPackages() []string {
	if l.tools == nil {
		return nil
	}
	return l.tools.Packages
}

// replacedTools are the packages of the guest's tools that are not the pinned ones.
func (l *lab) replacedTools() string {
	if l.tools == nil {
		return ""
	}
	return strings.Join(l.tools.Replaced, ", ")
}

// checkpoint stores the record of a running guest. A run whose checkpoint cannot be stored goes on.
func (l *lab) checkpoint(region []byte) {
	if err := l.storeCheckpoint(region); err != nil {
		l.message(fmt.Sprintf("the checkpoint cannot be stored: %v", err))
	}
}

// storeCheckpoint replaces the history in the folder of the run by the record in the region.
func (l *lab) storeCheckpoint(region []byte) error {
	if err := l.writeHost(&vm.Outcome{}); err != nil {
		return err
	}
	work, err := os.MkdirTemp(l.dir(), checkpointPrefix)
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	history := filepath.Join(work, record.HistoryDir)
	if _, err := extract(region, work, history); err != nil {
		return err
	}
	return l.replaceHistory(history)
}

// replaceHistory completes a history with run.json and replaces the one in the folder of the run.
func (l *lab) replaceHistory(history string) error {
	if err := writeJSON(filepath.Join(history, record.RunFile), l.Header()); err != nil {
		return err
	}
	return replaceHistory(history, filepath.Join(l.dir(), record.HistoryDir))
}

// Collect stores the guest's record, judges and seals it.
func (l *lab) Collect(runErr error) (*Result, error) { return l.settle(l.collect(runErr)) }

func (l *lab) collect(runErr error) (*Result, error) {
	if l.outcome == nil {
		return nil, runErr
	}
	if err := l.writeHost(l.outcome); err != nil { // first: it marks the folder as one of a run
		return nil, err
	}
	work, err := os.MkdirTemp(l.dir(), checkpointPrefix)
	if err != nil {
		return nil, fmt.Errorf("making a folder for the history: %w", err)
	}
	defer os.RemoveAll(work)
	end, err := extract(l.outcome.Region, l.dir(), work)
	if err != nil && runErr == nil {
		runErr = err
	}
	if err := l.replaceHistory(work); err != nil {
		return nil, err
	}
	result := &Result{Dir: l.dir(), InputsSha256: l.inputs, Wall: l.outcome.Wall, CPUTime: l.outcome.CPUTime}
	switch early := l.early(end, runErr); {
	case errors.Is(runErr, context.Canceled):
		return result.interrupted(runErr, l.Sign)
	case l.StopAt > 0 && end.trailer && end.reason == guest.Stopped && runErr == nil:
		result.Stopped = filepath.Join(l.dir(), guest.KernelStateDir(l.StopAt))
		return result.unsealed(nil)
	case early != nil:
		return result.early(early, l.Sign)
	case guest.Unjudged(l.plan.Scenario):
		return result.unsealed(nil)
	}
	return result.judge(l.Sign)
}

// CollectFiles stores only the files that the guest saved and host.json, for a guest without a history.
func (l *lab) CollectFiles(runErr error) (err error) {
	if l.outcome == nil {
		return runErr
	}
	if err := l.writeHost(l.outcome); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.folder.Finish()) }()
	end, err := extract(l.outcome.Region, l.dir(), filepath.Join(l.dir(), record.HistoryDir))
	if runErr == nil && err != nil {
		return err
	}
	if early := l.early(end, runErr); early != nil {
		return early
	}
	return nil
}

// early returns an InvalidError for a guest that ended early, nil for another one.
func (l *lab) early(end ending, runErr error) *InvalidError {
	switch {
	case runErr != nil:
		return &InvalidError{runErr.Error(), lastLines(l.outcome.Console, 20)}
	case !end.trailer:
		return &InvalidError{earlyEnd(l.outcome.Console), lastLines(l.outcome.Console, 20)}
	case end.reason != "":
		return &InvalidError{end.reason, nil}
	}
	return nil
}

// earlyEnd says that a guest's history has no end, with the message of a kernel panic if there is one.
func earlyEnd(console []string) string {
	for _, line := range console {
		if i := strings.Index(line, "Kernel panic"); i >= 0 {
			return "the guest ended before its history was complete: " + line[i:]
		}
	}
	return "the guest ended before its history was complete"
}

// Close releases the folder and the memory of the guest.
func (l *lab) Close(context.Context) {
	l.release()
	if l.outcome != nil {
		if err := l.outcome.Close(); err != nil {
			l.message(err.Error())
		}
	}
}
