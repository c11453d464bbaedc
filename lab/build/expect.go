package build

import (
	"context"
	"runtime"
	"time"

	"golang.org/x/mod/module"
)

// Expected is what a call of Build has to do.
type Expected struct {
	Missing []Target      // that are not in the cache, in their order
	Takes   time.Duration // about the wall time of their builds, with an empty build cache of Go; 0 for downloads, whose speed is unknown
}

// packagesOf is how many packages a program has, without those of the standard library (Kubernetes 1.37, etcd 3.7, Cilium 1.15). Older
// versions have fewer.
var packagesOf = map[string]int{
	"kube-apiserver": 1847, "kube-controller-manager": 2208, "kube-scheduler": 1223, "kube-proxy": 1222, "etcd": 347,
	"cilium-agent": 1500, "cilium-cni": 600,
	"agnhost": 1134, "regression-issue-74839": 1, "kubectl": 700, "e2e.test": 2640, "ginkgo": 42, "coredns": 582,
}

// packageCPU is about the CPU time that a package takes, with the linking of its programs: 573 s for 2,569 packages of the control plane.
const packageCPU = 220 * time.Millisecond

// Expect tells what Build would have to do, and downloads nothing. Programs of one module share nearly all of their packages.
func (b *Builder) Expect(ctx context.Context, targets ...Target) (Expected, error) {
	d, err := embedded()
	if err != nil {
		return Expected{}, err
	}
	s, err := b.store()
	if err != nil {
		return Expected{}, err
	}
	ready, err := b.lookUp(ctx, s, targets)
	if err != nil {
		return Expected{}, err
	}
	var e Expected
	packages := map[module.Version]int{}
	for i, t := range targets {
		if ready[i].err == nil {
			continue
		}
		p, err := d.program(t)
		if err != nil {
			return Expected{}, err
		}
		e.Missing = append(e.Missing, t)
		root := module.Version{Path: p.Module, Version: t.Version}
		packages[root] = max(packages[root], packagesOf[t.Name])
	}
	if b.Programs == Released {
		return e, nil
	}
	for _, n := range packages {
		e.Takes += time.Duration(n) * packageCPU / time.Duration(runtime.GOMAXPROCS(0))
	}
	return e, nil
}
