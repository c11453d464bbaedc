// Guesttools writes lab/tools/packages.txt: the packages of Debian with the tools of guests, and the libraries that they need. It takes what
// the release has now. Histories may change with it.
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

const file = "lab/tools/packages.txt"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := pin(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "guesttools:", err)
		os.Exit(2)
	}
}

func pin(ctx context.Context) error {
	dir, err := cache.Dir()
	if err != nil {
		return err
	}
	text, err := tools.Pin(ctx, filepath.Join(dir, "tools"), func(line string) { fmt.Fprintln(os.Stderr, line) })
	if err != nil {
		return err
	}
	return cache.WriteFile(file, []byte("# The packages of guests, of "+tools.Suite+" without security updates. `make guest-tools` writes this file.\n"+
		"# NAME VERSION ARCHITECTURE SHA256 PATH\n"+text))
}
