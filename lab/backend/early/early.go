// Package early starts a backend before most of hitless comes to life. A pod's program is hitless itself, and what the
// rest of it does at its start, client-go above all, takes longer than everything that a backend ever does: with the
// virtual clock, the larger part of what a rollout costs.
//
// The order is the language's own promise (The Go Programming Language Specification, "Program initialization"): of all
// packages whose imports are initialised, the one with the least import path comes next. This one imports little, and
// its path comes before those of Kubernetes' packages.
package early

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"

	"github.com/hitless/hitless/lab/backend"
)

// Word is the first argument that makes the program a backend.
const Word = "backend"

// heap is from when on a backend collects its garbage. Below it there is no collection, not even Go's own every two
// minutes: a backend lives for minutes, and is one of many that must not wake an idle guest.
const heap = 32 << 20

func init() {
	if len(os.Args) < 2 || os.Args[1] != Word {
		return
	}
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(heap)
	c := backend.Command()
	c.SetArgs(os.Args[2:])
	c.SilenceErrors, c.SilenceUsage = true, true
	if err := c.ExecuteContext(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "hitless backend:", err)
		os.Exit(2)
	}
	os.Exit(0)
}
