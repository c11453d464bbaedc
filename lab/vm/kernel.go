package vm

import (
	"context"
	"debug/elf"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hitless/hitless/internal/cache"
)

// ModuleList is the guest's file that lists the kernel modules to load, one path per line, in load order.
const ModuleList = "/etc/hitless-modules"

// Kernel is a kernel in the cache with its modules, which is never installed. All its files have been verified.
type Kernel struct {
	Release string // output of uname -r
	Package string // name_version of its package, or what identifies its files
	Source  string // the choice and the version or digest that it gave; empty for DefaultKernel
	Image   string // the compressed kernel
	Sha256  string // of Image, in hex

	dir   string
	files cache.Manifest
}

// fetchKernel returns an intact kernel. unpack gets its files into a new directory below work; what says so.
func fetchKernel(ctx context.Context, cacheDir, id, what string, progress func(string), unpack func(work string) (string, error)) (Kernel, error) {
	dir := filepath.Join(cacheDir, id)
	open := func() (Kernel, error) { return openKernel(ctx, dir, id) }
	return cache.Verified(ctx, cache.Source[Kernel]{
		Lock: filepath.Join(cacheDir, cache.LockName), Open: open, Report: progress,
		Make: func() (Kernel, error) {
			progress(what)
			if err := installKernel(ctx, dir, unpack); err != nil {
				return Kernel{}, fmt.Errorf("%s: %w", what, err)
			}
			return open()
		},
	})
}

// openKernel verifies a kernel. The error of a missing one wraps fs.ErrNotExist.
func openKernel(ctx context.Context, dir, id string) (Kernel, error) {
	files, err := cache.ReadManifest(dir)
	if err == nil {
		err = cache.Check(ctx, dir, files)
	}
	if err != nil {
		return Kernel{}, err
	}
	const prefix = "boot/vmlinuz-"
	var images []string
	for name := range files {
		if strings.HasPrefix(name, prefix) {
			images = append(images, name)
		}
	}
	if len(images) != 1 {
		return Kernel{}, fmt.Errorf("the kernel package %s has %d kernels, want 1", id, len(images))
	}
	return Kernel{Release: strings.TrimPrefix(images[0], prefix), Package: id, Image: filepath.Join(dir, images[0]),
		Sha256: files[images[0]], dir: dir, files: files}, nil
}

// newestKernel returns the newest intact one of the cached kernels whose names are accepted, and reports damaged ones.
func newestKernel(ctx context.Context, cacheDir string, accepts func(id string) bool, progress func(string)) (Kernel, bool) {
	dirs, _ := filepath.Glob(filepath.Join(cacheDir, "linux-image-*"))
	slices.Sort(dirs)
	for _, dir := range slices.Backward(dirs) {
		if !accepts(filepath.Base(dir)) {
			continue
		}
		k, err := openKernel(ctx, dir, filepath.Base(dir))
		if err == nil {
			return k, true
		}
		progress(err.Error() + "; it is not used")
	}
	return Kernel{}, false
}

// modules are the paths of the modules by name.
func (k Kernel) modules() map[string]string {
	paths := map[string]string{}
	for _, file := range slices.Sorted(maps.Keys(k.files)) {
		if name, isModule := strings.CutSuffix(path.Base(file), moduleSuffix); isModule && strings.HasPrefix(file, modulesDir+"/"+k.Release+"/kernel/") {
			paths[strings.ReplaceAll(name, "-", "_")] = filepath.Join(k.dir, file)
		}
	}
	return paths
}

// builtinFile lists the modules that are built in, as paths; the build of a kernel writes it.
const builtinFile = "modules.builtin"

// builtin are the names of the modules that are built in, as far as the kernel's files say so.
func (k Kernel) builtin() (map[string]bool, error) {
	name := path.Join(modulesDir, k.Release, builtinFile)
	if _, has := k.files[name]; !has {
		return nil, nil
	}
	return builtinOf(filepath.Join(k.dir, name))
}

// HostBuiltin are the names of the modules that this machine's kernel has built in. Where its files are not installed that is an error.
func HostBuiltin() (map[string]bool, error) {
	release, err := kernelRelease()
	if err != nil {
		return nil, fmt.Errorf("reading the release of this machine's kernel: %w", err)
	}
	return builtinOf(filepath.Join("/lib/modules", release, builtinFile))
}

// builtinOf reads a list of modules that are built in.
func builtinOf(file string) (map[string]bool, error) {
	list, err := os.ReadFile(file)
	names := map[string]bool{}
	for module := range strings.FieldsSeq(string(list)) {
		names[strings.ReplaceAll(strings.TrimSuffix(path.Base(module), moduleSuffix), "-", "_")] = true
	}
	return names, err
}

// ModuleFiles returns the files of the named modules and their dependencies in load order: dependencies first. A
// module that this kernel lacks is an error that names it.
func (k Kernel) ModuleFiles(names ...string) ([]string, error) {
	paths := k.modules()
	var order []string
	seen := map[string]bool{}
	var add func(name string) error
	add = func(name string) error {
		if seen[name] {
			return nil
		}
		seen[name] = true
		file, has := paths[name]
		if !has {
			return fmt.Errorf("kernel %s has no module %s", k.Release, name)
		}
		dependencies, err := moduleDependencies(file)
		if err != nil {
			return err
		}
		for _, dependency := range dependencies {
			if err := add(dependency); err != nil {
				return fmt.Errorf("%w (%s needs it)", err, name)
			}
		}
		order = append(order, file)
		return nil
	}
	for _, name := range names {
		if err := add(name); err != nil {
			return nil, err
		}
	}
	return order, nil
}

// moduleDependencies reads `depends=` in a module's .modinfo section, the source that depmod uses.
func moduleDependencies(path string) ([]string, error) {
	f, err := elf.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading the module %s: %w", path, err)
	}
	defer f.Close()
	section := f.Section(".modinfo")
	if section == nil {
		return nil, fmt.Errorf("the module %s has no .modinfo section", path)
	}
	info, err := section.Data()
	if err != nil {
		return nil, fmt.Errorf("reading the module %s: %w", path, err)
	}
	for entry := range strings.SplitSeq(string(info), "\x00") {
		if list, is := strings.CutPrefix(entry, "depends="); is && list != "" {
			return strings.Split(strings.ReplaceAll(list, "-", "_"), ","), nil
		}
	}
	return nil, nil
}

// Modules are the kernel modules that the lab and its subjects need, where the kernel does not have them built in.
var Modules = []string{
	"virtio_pci", "veth", "bridge", "dummy", "br_netfilter", "af_packet", "sch_netem", "sch_fq_codel",
	"nf_conntrack", "nf_conntrack_netlink", "nf_nat", "nf_tables", "nft_ct", "nft_nat", "nft_chain_nat", "nft_masq", "nft_redir",
	"nft_counter", "nft_hash", "nft_numgen", "nft_reject_ipv4", "nft_reject_ipv6", "nft_reject_inet", "nft_limit", "nft_log", "nft_fib_ipv4", "nft_fib_ipv6", "nft_fib_inet", "nft_compat",
	"ip_vs", "ip_vs_rr", "ip_vs_wrr", "ip_vs_lc", "ip_vs_sh", "ip_vs_mh",
	"ip_set", "ip_set_hash_ip", "ip_set_hash_net", "ip_set_hash_ipport", "ip_set_hash_ipportip", "ip_set_hash_ipportnet", "ip_set_bitmap_port",
	"ip_tables", "iptable_nat", "iptable_filter", "iptable_mangle",
	"xt_comment", "xt_conntrack", "xt_mark", "xt_MASQUERADE", "xt_nat", "xt_addrtype", "xt_set", "xt_statistic", "xt_multiport",
	"xt_tcpudp", "xt_recent", "xt_nfacct", "xt_ipvs", "ipt_REJECT", "ip6t_REJECT", "xt_REDIRECT", "xt_physdev",
	"tcp_diag", "udp_diag", // lists of sockets for debugging
}

// AddModules adds the modules and their load order to the image. Names that this kernel lacks are returned as
// missing: the kernel may have them built in.
func (img *Image) AddModules(k Kernel, names ...string) (missing []string, err error) {
	var have []string
	for _, name := range names {
		if _, err := k.ModuleFiles(name); err != nil {
			missing = append(missing, name)
			continue
		}
		have = append(have, name)
	}
	files, err := k.ModuleFiles(have...)
	if err != nil {
		return nil, err
	}
	var list strings.Builder
	for _, file := range files {
		guest := "/usr/lib/modules/" + filepath.Base(file)
		img.Add(guest, file, 0o644)
		list.WriteString(guest + "\n")
	}
	img.Text(ModuleList, list.String())
	// kube-proxy up to 1.12 leaves IPVS mode unless this module exists; Linux 4.19 removed it.
	img.Text("/usr/lib/modules/"+k.Release+"/modules.builtin", "kernel/net/ipv4/netfilter/nf_conntrack_ipv4.ko\n")
	return missing, nil
}
