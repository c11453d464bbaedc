package site

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/hitless/hitless/lab/tools"
	"github.com/hitless/hitless/lab/vm"
)

// packer adds programs to an image, and at the end the shared libraries that they need.
type packer struct {
	img   *vm.Image
	fetch func(context.Context) (tools.Set, error)
	set   *tools.Set // nil until a tool is needed
	elf   []string   // programs in machine code that need libraries
	host  bool       // some of them are of this machine
}

// ToolsDir is the directory of the guest's tools in a cache.
func ToolsDir(cacheDir string) string { return filepath.Join(cacheDir, "tools") }

// packer returns a packer for an image of the lab.
func (l *lab) packer(img *vm.Image) *packer {
	return &packer{img: img, fetch: l.fetchTools}
}

func (l *lab) fetchTools(ctx context.Context) (tools.Set, error) {
	return tools.Fetch(ctx, ToolsDir(l.Cache), l.toolsPurpose(), l.message)
}

// tools fetches the tools when they are needed first.
func (p *packer) tools(ctx context.Context) (*tools.Set, error) {
	if p.set == nil {
		set, err := p.fetch(ctx)
		if err != nil {
			return nil, UsageError{Reason: err}
		}
		p.set = &set
	}
	return p.set, nil
}

// addTools adds programs of the guest's tools by their names.
func (p *packer) addTools(ctx context.Context, names ...string) error {
	set, err := p.tools(ctx)
	if err != nil {
		return err
	}
	for _, name := range names {
		f, has := set.Program(name)
		if !has {
			return fmt.Errorf("the guest's tools have no program %s", name)
		}
		if err := p.addToolFile(f, f.Guest); err != nil {
			return err
		}
	}
	return nil
}

func (p *packer) addToolFile(f tools.File, guest string) error {
	p.elf = append(p.elf, f.Path)
	return p.img.AddWithSum(guest, f.Path, 0o755, f.Sha256)
}

// AddProxyTools adds the programs that kube-proxy calls to an image, with their libraries.
func AddProxyTools(ctx context.Context, img *vm.Image, cacheDir string, report func(string)) error {
	p := &packer{img: img, fetch: func(ctx context.Context) (tools.Set, error) {
		return tools.Fetch(ctx, ToolsDir(cacheDir), tools.ForGuests, report)
	}}
	if err := p.addProxyTools(ctx); err != nil {
		return err
	}
	return p.addLibraries()
}

func (p *packer) addProxyTools(ctx context.Context) error {
	// 1.11 to 1.15 read /proc/modules with cut, and leave IPVS mode without it.
	if err := p.addTools(ctx, "ipset", "conntrack", "nft", "cut"); err != nil {
		return err
	}
	// The modules are loaded already. Without modprobe kube-proxy assumes a kernel without IPVS, and leaves its table behind when its
	// mode changes.
	yes, has := p.set.Program("true")
	if !has {
		return fmt.Errorf("the guest's tools have no program true")
	}
	if err := p.addToolFile(yes, "/usr/sbin/modprobe"); err != nil {
		return err
	}
	p.img.Text("/etc/protocols", "icmp 1 ICMP\ntcp 6 TCP\nudp 17 UDP\nipv6-icmp 58 IPv6-ICMP\nsctp 132 SCTP\n") // for ipset
	return p.addIptables(ctx)
}

// addIptables adds iptables with its other names and with its extensions, which it loads at run time.
func (p *packer) addIptables(ctx context.Context) error {
	if err := p.addTools(ctx, "xtables-nft-multi"); err != nil {
		return err
	}
	for _, name := range []string{"iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore",
		"iptables-nft-save", "iptables-nft-restore"} {
		p.img.Link("/usr/sbin/"+name, "xtables-nft-multi")
	}
	for _, f := range p.set.Extensions() {
		if err := p.addToolFile(f, f.Guest); err != nil {
			return err
		}
	}
	return nil
}

// addHostProgram adds a program in machine code of this machine.
func (p *packer) addHostProgram(guest, host string) error {
	real, err := filepath.EvalSymlinks(host)
	if err != nil {
		return fmt.Errorf("finding the program %s: %w", host, err)
	}
	dynamic, err := tools.Dynamic(real)
	if err != nil {
		return err
	}
	p.img.Add(guest, real, 0o755)
	if dynamic {
		p.elf, p.host = append(p.elf, real), true
	}
	return nil
}

// roots are where the libraries come from. All programs of a guest share its C library. Where some are of this machine, it is the newer one
// of this machine's and the tools'.
func (p *packer) roots() ([]tools.Root, error) {
	switch {
	case p.set == nil:
		return []tools.Root{tools.Host}, nil
	case !p.host:
		return []tools.Root{p.set.Root()}, nil
	}
	return tools.Newer(p.set.Root(), tools.Host)
}

// addLibraries adds the loader and the shared libraries of all programs. Every error is a UsageError.
func (p *packer) addLibraries() error {
	roots, err := p.roots()
	if err != nil {
		return UsageError{Reason: err}
	}
	for _, program := range p.elf {
		found, err := tools.Libraries(program, roots...)
		if err != nil {
			return UsageError{Reason: err}
		}
		for _, guest := range slices.Sorted(maps.Keys(found)) {
			if err := p.addLibrary(guest, found[guest]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *packer) addLibrary(guest, file string) error {
	if p.set != nil {
		if sum, has := p.set.Sum(file); has {
			return p.img.AddWithSum(guest, file, 0o755, sum)
		}
	}
	p.img.Add(guest, file, 0o755)
	return nil
}
