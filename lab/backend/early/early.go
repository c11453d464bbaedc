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
	"runtime"
	"runtime/debug"
	"sync"

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
	enlargeFirstStacks()
	waitForSleepers()
	c := backend.Command()
	c.SetArgs(os.Args[2:])
	c.SilenceErrors, c.SilenceUsage = true, true
	if err := c.ExecuteContext(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "hitless backend:", err)
		os.Exit(2)
	}
	os.Exit(0)
}

// enlargeFirstStacks makes new goroutines start with a stack of 16 KiB, which serves a request. Go grows smaller ones
// by copying, for each connection, and learns better only from a collection.
func enlargeFirstStacks() {
	const many = 64 // so that the runtime's own goroutines hardly change the average
	var begun sync.WaitGroup
	end := make(chan struct{})
	defer close(end)
	begun.Add(many)
	for range many {
		go holdStack(&begun, end)
	}
	begun.Wait()
	runtime.GC()
}

// holdStack uses more than 8 KiB of stack until end is closed.
//
//go:noinline
func holdStack(begun *sync.WaitGroup, end <-chan struct{}) byte {
	var frame [10 << 10]byte
	frame[len(os.Args)] = 1
	begun.Done()
	<-end
	return frame[len(os.Args)]
}
