// Guesttools writes lab/tools/packages.txt, compiler.txt and pods.txt: the packages of Debian with the tools of guests, with a compiler for
// BPF, and of pods, and the libraries that they need. It takes what the release has now. Histories may change with the first two.
package main

import (
	"context"
	"errors"
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
	return errors.Join(write("packages.txt", "The packages of guests", packages),
		write("compiler.txt", "More packages of guests with a compiler for BPF", compiler), write("pods.txt", "The packages of images of pods", pods))
}

func write(name, what, text string) error {
	return cache.WriteFile(filepath.Join("lab", "tools", name), []byte("# "+what+", of "+tools.Suite+" without security updates. `make guest-tools` writes this file.\n"+
		"# NAME VERSION ARCHITECTURE SHA256 PATH\n"+text))
}
