package site

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/internal/cache"
	"github.com/hitless/hitless/internal/guest"
	"github.com/hitless/hitless/internal/testfiles"
	"github.com/hitless/hitless/lab/subject"
	"github.com/hitless/hitless/lab/tools"
	"github.com/hitless/hitless/lab/vm"
)

// describe writes files into a new folder and returns it.
func describe(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const ready = "ready: {url: 'http://127.0.0.1:10256/healthz'}\n"

// packerOf packs with tools of their own: sh, nft and the programs of kube-proxy, with a loader and a C library.
func packerOf(t *testing.T, img *vm.Image) (p *packer, dir string) {
	t.Helper()
	dir = t.TempDir()
	const loader = "/lib64/ld-linux-x86-64.so.2"
	files := map[string]string{"usr/lib64/ld-linux-x86-64.so.2": testfiles.ELF(t, "ld", ""), "usr/lib/x86_64-linux-gnu/libc.so.6": testfiles.ELF(t, "libc", ""),
		"usr/lib/x86_64-linux-gnu/xtables/libxt_mark.so": testfiles.ELF(t, "mark", "", "libc.so.6")}
	for _, program := range []string{"usr/bin/sh", "usr/bin/cut", "usr/bin/true", "usr/sbin/nft", "usr/sbin/ipset", "usr/sbin/conntrack", "usr/sbin/xtables-nft-multi"} {
		files[program] = testfiles.ELF(t, program, loader, "libc.so.6")
	}
	for name, text := range files {
		file := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	if err := cache.Seal(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	return &packer{img: img, fetch: func(ctx context.Context) (tools.Set, error) { return tools.Open(ctx, dir) }}, dir
}

// The tools of a guest, their loader and their libraries are files of the packages: none is of this machine.
func TestToolsAreNotOfThisMachine(t *testing.T) {
	img := vm.NewImage()
	p, dir := packerOf(t, img)
	if err := p.addProxyTools(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := p.addLibraries(); err != nil {
		t.Fatal(err)
	}
	for _, f := range img.Files() {
		if f.Host != "" && !strings.HasPrefix(f.Host, dir+"/") {
			t.Errorf("%s is %s", f.Guest, f.Host)
		}
	}
	for _, file := range []string{"/usr/sbin/modprobe", "/usr/sbin/iptables-restore", "/usr/lib64/ld-linux-x86-64.so.2", "/usr/lib/x86_64-linux-gnu/libc.so.6", "/usr/lib/x86_64-linux-gnu/xtables/libxt_mark.so"} {
		if !img.Has(file) {
			t.Errorf("%s is missing in the guest", file)
		}
	}
}

// A program of this machine that needs libraries brings them, and the tools share its C library if that is the newer one.
func TestProgramsOfThisMachine(t *testing.T) {
	host, err := exec.LookPath("ls")
	if err != nil {
		t.Skip("this machine has no ls")
	}
	if dynamic, err := tools.Dynamic(host); err != nil || !dynamic {
		t.Skipf("ls of this machine needs no libraries (%v)", err)
	}
	img := vm.NewImage()
	p, dir := packerOf(t, img)
	if err := errors.Join(p.addTools(t.Context(), "nft"), p.addHostProgram("/usr/bin/ls", host), p.addLibraries()); err != nil {
		t.Fatal(err)
	}
	for _, f := range img.Files() {
		packed := strings.HasPrefix(f.Host, dir+"/")
		if want := f.Guest == "/usr/sbin/nft"; f.Host != "" && packed != want {
			t.Errorf("%s is %s", f.Guest, f.Host)
		}
	}
}

func TestPackExec(t *testing.T) {
	dir := describe(t, map[string]string{"proxy": "#!/bin/sh\nexec nft -f /etc/rules\n", "rules": "flush ruleset\n",
		"subject.yaml": "program: proxy\n" + ready + "tools: [sh, nft, own-tool]\nfiles: [{from: rules, to: /etc/rules}]\n"})
	e, err := subject.ReadExec(t.Context(), filepath.Join(dir, "subject.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(t.TempDir(), "own-tool")
	if err := os.WriteFile(own, []byte(testfiles.ELF(t, "static", "")), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", filepath.Dir(own)+":"+os.Getenv("PATH"))
	img := vm.NewImage()
	p, tools := packerOf(t, img)
	if err := errors.Join(p.addExec(t.Context(), &e), p.addLibraries()); err != nil {
		t.Fatal(err)
	}
	for _, f := range img.Files() { // its programs need no libraries of this machine
		if f.Host != "" && !strings.HasPrefix(f.Host, tools) && !strings.HasPrefix(f.Host, dir) && f.Host != own {
			t.Errorf("%s is %s", f.Guest, f.Host)
		}
	}
	for _, file := range []string{"/opt/subject/proxy", "/etc/rules", "/bin/sh", "/usr/sbin/nft", "/usr/bin/own-tool", "/lib/x86_64-linux-gnu/libc.so.6"} {
		if !img.Has(file) {
			t.Errorf("%s is missing in the guest", file)
		}
	}
}

// host.json names the program of a described subject by its content.
func TestTheProgramOfASubjectIsNoted(t *testing.T) {
	noted := func(program string) programFacts {
		t.Helper()
		dir := describe(t, map[string]string{"proxy": program, "subject.yaml": "program: proxy\nname: own\nversion: v1\n" + ready})
		e, err := subject.ReadExec(t.Context(), filepath.Join(dir, "subject.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		l := &lab{}
		if err := l.noteExec(t.Context(), &e); err != nil || len(l.programs) != 1 {
			t.Fatal(l.programs, err)
		}
		return l.programs[0]
	}
	one, same, other := noted("#!/bin/sh\n"), noted("#!/bin/sh\n"), noted("#!/bin/sh\nexit 1\n")
	if one.Program != "own@v1" || len(one.Sha256) != 64 || one.Sha256 != same.Sha256 || one.Sha256 == other.Sha256 {
		t.Errorf("%+v, again %+v, another program %+v", one, same, other)
	}
}

// Errors of a subject file are usage errors before the guest boots, with the file's name.
func TestPackExecErrors(t *testing.T) {
	for name, c := range map[string]struct{ program, more, want string }{
		"no shell":         {"#!/bin/sh\n", "", "tools:"},
		"no program":       {"hello", "", "neither a program"},
		"no tool":          {"#!/bin/sh\n", "tools: [sh, no-such-tool]\n", "no-such-tool"},
		"the same place":   {"#!/bin/sh\n", "tools: [sh]\nfiles: [{from: proxy, to: /usr/bin/sh}]\n", "exists in the guest already"},
		"the same, moved":  {"#!/bin/sh\n", "tools: [sh]\nfiles: [{from: proxy, to: /bin/sh}]\n", "exists in the guest already"},
		"hitless' own":     {"#!/bin/sh\n", "tools: [sh]\nfiles: [{from: proxy, to: /usr/bin/hitless}]\n", "exists in the guest already"},
		"the guest's init": {"#!/bin/sh\n", "tools: [sh]\nfiles: [{from: proxy, to: /init}]\n", "exists in the guest already"},
	} {
		dir := describe(t, map[string]string{"proxy": c.program, "subject.yaml": "program: proxy\n" + ready + c.more})
		e, err := subject.ReadExec(t.Context(), filepath.Join(dir, "subject.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		img := vm.NewImage()
		img.Add("/usr/bin/hitless", e.Pack.Program, 0o755)
		img.Link("/init", "usr/bin/hitless")
		p, _ := packerOf(t, img)
		if err := p.addExec(t.Context(), &e); !isUsage(err) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), e.Pack.Source) {
			t.Errorf("%s: %v, want a usage error with the file's name and %q", name, err, c.want)
		}
	}
}

func isUsage(err error) bool { return errors.As(err, new(UsageError)) }

// A stop time needs a deterministic run.
func TestWhereARunCanStop(t *testing.T) {
	for name, c := range map[string]struct {
		o    LabOptions
		plan guest.Plan
		want string
	}{
		"nowhere":           {LabOptions{}, guest.Plan{Kernel: guest.KernelHost}, ""},
		"in a VM":           {LabOptions{StopAt: time.Second}, guest.Plan{}, ""},
		"before it begins":  {LabOptions{StopAt: -time.Second}, guest.Plan{}, "--stop-at -1s"},
		"the real clock":    {LabOptions{StopAt: time.Second, Clock: "real"}, guest.Plan{}, "needs the virtual clock"},
		"the host's kernel": {LabOptions{StopAt: time.Second}, guest.Plan{Kernel: guest.KernelHost}, "needs the virtual clock"},
	} {
		l := &lab{LabOptions: c.o, plan: c.plan}
		if err := l.checkStop(); (err == nil) != (c.want == "") || err != nil && (!isUsage(err) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// The objects of a timeline need memory. A machine with too little is refused with the numbers.
func TestObjectsNeedMemory(t *testing.T) {
	l := &lab{LabOptions: LabOptions{ControlPlane: "replay"}, plan: guest.Plan{Objects: 60_000}}
	if got := l.memoryMB(); got != 2048+60_000*100/1024 {
		t.Errorf("a run of %d objects gets %d MB", l.plan.Objects, got)
	}
	l.plan.Objects = 9000
	if err := l.checkMemory(1000, l.memoryMB()); !isUsage(err) || !strings.Contains(err.Error(), "878 MB of them for the 9000 objects of ") {
		t.Errorf("a machine without the memory gave %v", err)
	}
}

// Files in directories of the node's own, and manifests, have places of their own in the guest.
func TestPackFilesOfNodes(t *testing.T) {
	dir := describe(t, map[string]string{"proxy": "#!/bin/sh\n", "rules": "x", "object.yaml": "apiVersion: v1\nkind: Namespace\nmetadata: {name: x}\n",
		"subject.yaml": "program: proxy\n" + ready + "tools: [sh]\nobjects: [object.yaml]\nfiles: [{from: rules, to: /var/lib/proxy/rules}, {from: rules, to: /run/rules}, {from: rules, to: /var/run/rules}, {from: rules, to: /var/library}]\n"})
	e, err := subject.ReadExec(t.Context(), filepath.Join(dir, "subject.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	img := vm.NewImage()
	p, _ := packerOf(t, img)
	if err := p.addExec(t.Context(), &e); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{guest.NodeFiles + "/var/lib/proxy/rules", guest.NodeFiles + "/run/rules", guest.NodeFiles + "/var/run/rules", "/var/library", e.Objects[0].Path} {
		if !img.Has(file) {
			t.Errorf("%s is missing in the guest", file)
		}
	}
	if img.Has("/var/lib/proxy/rules") {
		t.Error("a file that each node has for itself is also in the guest, where nodes hide it")
	}
}
