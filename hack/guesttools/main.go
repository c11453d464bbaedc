// Guesttools writes lab/tools/packages.txt, compiler.txt and pods.txt: the packages of Debian with the tools of guests, with a compiler for
// BPF, and of pods, and the libraries that they need. It takes what the release has now. Histories may change with the first two.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"

	"github.com/hitless/hitless/internal/cache"
	"github.com/hitless/hitless/lab/tools"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := pinAll(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "guesttools:", err)
		os.Exit(2)
	}
}

func pinAll(ctx context.Context) error {
	cached, err := cache.Dir()
	if err != nil {
		return err
	}
	report := func(line string) { fmt.Fprintln(os.Stderr, line) }
	packages, compiler, err := tools.Pin(ctx, filepath.Join(cached, "tools"), tools.OfGuests, tools.OfCompilers, report)
	if err != nil {
		return err
	}
	pods, _, err := tools.Pin(ctx, filepath.Join(cached, "tools"), tools.OfPods, nil, report)
	if err != nil {
		return err
	}
	return cache.WriteFiles(filepath.Join("lab", "tools"), []cache.File{list("packages.txt", "The packages of guests", packages),
		list("compiler.txt", "More packages of guests with a compiler for BPF", compiler), list("pods.txt", "The packages of images of pods", pods)})
}

func list(name, what, text string) cache.File {
	return cache.File{Name: name, Data: []byte("# " + what + ", of " + tools.Suite + " without security updates. `make guest-tools` writes this file.\n" +
		"# NAME VERSION ARCHITECTURE SHA256 PATH\n" + text)}
}
