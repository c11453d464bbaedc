// Command controlplane builds the programs of the lab's real control plane into the cache, with a low priority. hack/demo.sh starts it before
// hitless itself is compiled, so that no CPU waits meanwhile.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/hitless/hitless/internal/cache"
	"github.com/hitless/hitless/lab/build"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := buildAll(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "building the control plane:", err)
		os.Exit(1)
	}
}

func buildAll(ctx context.Context) error {
	dir, err := cache.Dir()
	if err != nil {
		return err
	}
	b := &build.Builder{Cache: filepath.Join(dir, "build"), Low: true, Progress: func(s build.Step) { fmt.Fprintln(os.Stderr, s.Text) }}
	_, err = b.Build(ctx, build.ControlPlane...)
	return err
}
