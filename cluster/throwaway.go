package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"sigs.k8s.io/e2e-framework/support"
	"sigs.k8s.io/e2e-framework/support/kind"
)

// Kind returns e2e-framework's provider of clusters in containers. It checks kind and its container engine first, since the framework
// would install missing programs.
func Kind(ctx context.Context) (support.E2EClusterProvider, error) {
	program, err := exec.LookPath("kind")
	if err != nil {
		return nil, fmt.Errorf("looking for the program kind: %w; --kind creates clusters with it and a container engine: install both, or name an existing cluster with --kubeconfig FILE", err)
	}
	said, err := exec.CommandContext(ctx, program, "get", "clusters").CombinedOutput()
	if ctx.Err() != nil {
		return nil, fmt.Errorf("listing the clusters of %s: %w", program, context.Cause(ctx))
	}
	if err != nil {
		return nil, fmt.Errorf("listing the clusters of %s: %w: %s; it needs a container engine (Docker, Podman or nerdctl) that this user may use",
			program, err, strings.TrimSpace(string(said)))
	}
	return kind.NewProvider().SetDefaults().WithPath(program), nil
}

// kindVersion matches the tags of kind's images.
var kindVersion = regexp.MustCompile(`^v1\.\d+\.\d+$`)

// CheckKindVersion returns an error for text that is not a tag of kind's images.
func CheckKindVersion(version string) error {
	if !kindVersion.MatchString(version) {
		return fmt.Errorf("--kind %q: give a version of Kubernetes that kind has an image of, such as v1.26.0", version)
	}
	return nil
}

// Throwaway is a cluster that is made for a run and deleted after it.
type Throwaway struct {
	Name       string // begins with "hitless-"
	Kubeconfig string // a file

	provider support.E2EClusterProvider
	dir      string // of kind's files; removed with the cluster
}

// MakeThrowaway makes a cluster of a Kubernetes version with a node for the control plane and workers for pods. After an error or an
// interrupt it deletes the incomplete cluster.
func MakeThrowaway(ctx context.Context, provider support.E2EClusterProvider, version string, workers int) (t *Throwaway, err error) {
	// A unique name: the provider adopts an existing cluster, which would be deleted after the run.
	name := fmt.Sprintf("hitless-%s-%08x", strings.ReplaceAll(version, ".", "-"), rand.Uint32())
	t = &Throwaway{Name: name, provider: provider.WithName(name)}
	if t.dir, err = os.MkdirTemp("", "hitless-kind-"); err != nil {
		return nil, fmt.Errorf("making a folder for the files of kind: %w; set TMPDIR to a folder", err)
	}
	file := filepath.Join(t.dir, "config.yaml")
	if err := os.WriteFile(file, []byte(kindConfig(version, workers)), 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("writing the configuration of the cluster: %w; set TMPDIR to a folder with free space", err), os.RemoveAll(t.dir))
	}
	err = t.isolated(func() (err error) {
		t.Kubeconfig, err = t.provider.CreateWithConfig(ctx, file)
		return err
	})
	if err != nil {
		err = fmt.Errorf("making the cluster %s: %w", name, err)
		if ctx.Err() != nil {
			err = fmt.Errorf("making the cluster %s: %w", name, context.Cause(ctx))
		}
		return nil, errors.Join(err, t.Delete(ctx))
	}
	return t, nil
}

// environment is held while KUBECONFIG of this process is another one.
var environment sync.Mutex

// isolated calls kind with a kubeconfig of its own: it adds its cluster to the user's, and changes the current context there.
func (t *Throwaway) isolated(call func() error) error {
	environment.Lock()
	defer environment.Unlock()
	const name = "KUBECONFIG"
	if users, set := os.LookupEnv(name); set {
		defer os.Setenv(name, users)
	} else {
		defer os.Unsetenv(name)
	}
	if err := os.Setenv(name, filepath.Join(t.dir, "kubeconfig")); err != nil {
		return err
	}
	return call()
}

// kindConfig is the configuration of kind for a cluster with these workers.
func kindConfig(version string, workers int) string {
	text := "kind: Cluster\napiVersion: kind.x-k8s.io/v1alpha4\nnodes:\n"
	for _, role := range append([]string{"control-plane"}, strings.Fields(strings.Repeat("worker ", workers))...) {
		text += "- role: " + role + "\n  image: kindest/node:" + version + "\n"
	}
	return text
}

// deleteTimeout limits the deletion of a cluster.
const deleteTimeout = 3 * time.Minute

// Delete deletes the cluster, also after the end of ctx. The error names the command that tries again.
func (t *Throwaway) Delete(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), deleteTimeout)
	defer cancel()
	err := t.isolated(func() error { return t.provider.Destroy(ctx) })
	if err != nil {
		err = fmt.Errorf("deleting the cluster %s: %w; `kind delete cluster --name %s` tries again", t.Name, err, t.Name)
	}
	return errors.Join(err, os.RemoveAll(t.dir))
}

// lookTimeout limits one request for the facts of a cluster.
const lookTimeout = 30 * time.Second

// Settle waits, at most for the given time, until so many nodes take pods.
func (c *Cluster) Settle(ctx context.Context, nodes int, most time.Duration) error {
	found, last := 0, error(nil)
	settled := c.poll(ctx, most, func(ctx context.Context) bool {
		ctx, cancel := context.WithTimeout(ctx, lookTimeout)
		defer cancel()
		var facts Facts
		facts, last = c.Facts(ctx)
		found = len(facts.Nodes)
		return found >= nodes
	})
	switch {
	case settled:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case last != nil:
		return fmt.Errorf("waiting %s for %d nodes that take pods: %w", most, nodes, last)
	}
	return fmt.Errorf("waited %s for %d nodes that take pods, and there are %d: this machine may be too small for them; give fewer with --nodes", most, nodes, found)
}
