// Guesttools writes lab/tools/packages.txt and lab/tools/pods.txt: the packages of Debian with the tools of guests, or of pods, and the
// libraries that they need. It takes what the release has now. Histories may change with the first list.
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
	err := pin(ctx, "lab/tools/packages.txt", "guests", tools.ForGuests)
	if err == nil {
		err = pin(ctx, "lab/tools/pods.txt", "images of pods", tools.ForPods)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "guesttools:", err)
		os.Exit(2)
	}
}

// pin writes a list.
func pin(ctx context.Context, file, of string, programs []string) error {
	dir, err := cache.Dir()
	if err != nil {
		return err
	}
	text, err := tools.Pin(ctx, filepath.Join(dir, "tools"), programs, func(line string) { fmt.Fprintln(os.Stderr, line) })
	if err != nil {
		return err
	}
	return cache.WriteFile(file, []byte("# The packages of "+of+", of "+tools.Suite+" without security updates. `make guest-tools` writes this file.\n"+
		"# NAME VERSION ARCHITECTURE SHA256 PATH\n"+text))
}
