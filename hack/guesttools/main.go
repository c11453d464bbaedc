// Guesttools writes lab/tools/packages.txt and compiler.txt: the packages of Debian with the tools of guests, and the libraries that they
// need. It takes what the release has now. Histories may change with it.
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

const dir = "lab/tools/"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := pin(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "guesttools:", err)
		os.Exit(2)
	}
}

func pin(ctx context.Context) error {
	cached, err := cache.Dir()
	if err != nil {
		return err
	}
	packages, compiler, err := tools.Pin(ctx, filepath.Join(cached, "tools"), func(line string) { fmt.Fprintln(os.Stderr, line) })
	if err != nil {
		return err
	}
	return errors.Join(write("packages.txt", "The packages of guests", packages),
		write("compiler.txt", "More packages of guests with a compiler for BPF", compiler))
}

func write(name, what, text string) error {
	return cache.WriteFile(dir+name, []byte("# "+what+", of "+tools.Suite+" without security updates. `make guest-tools` writes this file.\n"+
		"# NAME VERSION ARCHITECTURE SHA256 PATH\n"+text))
}
