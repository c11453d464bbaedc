package site

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/hitless/hitless/internal/cache"
	"github.com/hitless/hitless/internal/guest"
	"github.com/hitless/hitless/lab/memory"
	"github.com/hitless/hitless/lab/subject"
	"github.com/hitless/hitless/lab/vm"
	"github.com/hitless/hitless/record"
)

// MemoryMB is the memory of a VM with a control plane, in MB; the packed files are in it too.
func MemoryMB(controlPlane string) int {
	if controlPlane == record.ControlKube {
		return 6144
	}
	return 2048
}

// NeededMB is the memory that a run in a VM of that size needs of this machine, in MB.
func NeededMB(memoryMB int) int { return memoryMB*2/3 + 256 }

// compilerMB is the memory for a compiler, its libraries in the packed files, and agents that compile with it on three nodes.
const compilerMB = 1536

// hostMemoryMB is about the memory of a lab on the host, measured with three nodes.
func hostMemoryMB(controlPlane string) int {
	if controlPlane == record.ControlKube {
		return 1536
	}
	return 768
}

func (l *lab) memoryMB() int {
	if l.MemoryMB > 0 {
		return l.MemoryMB
	}
	mb := MemoryMB(l.ControlPlane) + l.objectsMB()
	if l.needsCompiler() {
		mb += compilerMB
	}
	return mb
}

// objectsMB is the memory for the objects of a timeline, in the control plane and in its watchers. A recording of 10,000 Services
// with 4 endpoints each has 20,000 objects that proxies watch.
func (l *lab) objectsMB() int { return l.plan.Objects * guest.ObjectBytes >> 20 }

// needMB is the memory that the run needs of this machine, in MB.
func (l *lab) needMB() int {
	if l.plan.Kernel == guest.KernelHost || l.Kernel == guest.KernelHost {
		return hostMemoryMB(l.ControlPlane) + l.objectsMB()
	}
	return NeededMB(l.memoryMB())
}

// MemoryFor is the memory that a run in a lab needs of this machine, in MB. With the kernel auto it is that of a VM.
func MemoryFor(o LabOptions, plan guest.Plan, spec subject.Spec) int {
	return (&lab{LabOptions: o, plan: plan, spec: spec}).needMB()
}

// checkMachine refuses a run for which this machine lacks QEMU, memory or disk.
func (l *lab) checkMachine() error {
	if l.plan.Kernel != guest.KernelHost {
		if _, err := exec.LookPath(vm.QEMU); err != nil {
			return Usagef("%s is not installed; `apt-get install qemu-system-x86` installs it", vm.QEMU)
		}
	}
	if err := l.checkMemory(memory.AvailableMB(), l.needMB()); err != nil {
		return err
	}
	return checkDisk(l.Out, l.Cache)
}

// checkMemory refuses a run that needs more memory than is available, in MB.
func (l *lab) checkMemory(available, need int) error {
	if available >= need {
		return nil
	}
	why := ""
	if mb := l.objectsMB(); mb > 0 {
		why = fmt.Sprintf(", %d MB of them for the %d objects of the timeline", mb, l.plan.Objects)
	}
	return Usagef("%d MB of memory are available; a lab with the %s control plane needs %d MB%s", available, l.ControlPlane, need, why)
}

// diskMB is the space that a run needs, in MB: for the guest's memory region, its history and the packed files in the cache.
const diskMB = 2048

// checkDisk refuses a run for which a file system is too full.
func checkDisk(out, cacheDir string) error {
	if err := os.MkdirAll(cacheDir, 0o755); err != nil {
		return Usagef("making the cache: %w; set HITLESS_CACHE to a folder", err)
	}
	for _, place := range Places(out, cacheDir) {
		if _, err := place.Free(); err != nil {
			return err
		}
	}
	return nil
}

// Place is a folder in which a run needs space.
type Place struct {
	Dir    string
	Change string // names another one
	NeedMB int64  // 0 for what a run needs
}

// Places are the folders in which a run needs space.
func Places(out, cacheDir string) []Place {
	return []Place{{Dir: out, Change: "--out"}, {Dir: os.TempDir(), Change: "TMPDIR"}, {Dir: cacheDir, Change: "HITLESS_CACHE"}}
}

// Free is the free space of a place in MB. A folder that does not exist has that of the one above. The UsageError says that there is too
// little, or that this user cannot write there.
func (p Place) Free() (mb int64, err error) {
	dir, err := filepath.Abs(p.Dir)
	if err != nil {
		return 0, Usagef("finding the folder %s: %w; name another place with %s", p.Dir, err, p.Change)
	}
	for {
		if _, err := os.Stat(dir); err == nil || dir == filepath.Dir(dir) {
			break
		}
		dir = filepath.Dir(dir)
	}
	free, err := cache.FreeBytes(dir)
	if err != nil {
		return 0, Usagef("%w; name another place with %s", err, p.Change)
	}
	need, what := int64(diskMB), "a run needs"
	if p.NeedMB > 0 {
		need, what = p.NeedMB, "the build of the real control plane needs"
	}
	if free >>= 20; free < need {
		return free, Usagef("%s has %d MB free, %s %d MB; free some, or name another place with %s", p.Dir, free, what, need, p.Change)
	}
	if err := cache.MayWrite(dir); err != nil {
		return free, Usagef("%s cannot be written by this user (%s: %w); allow that, or name another place with %s", p.Dir, dir, err, p.Change)
	}
	return free, nil
}
