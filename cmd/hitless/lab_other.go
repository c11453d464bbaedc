//go:build !linux

package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
)

func initGuest() {}

// linuxCommands are the commands that need Linux, each with an error in its place.
func linuxCommands() []*cobra.Command {
	needs := func(name, short string) *cobra.Command {
		return &cobra.Command{Use: name, Short: short + " (on Linux)", DisableFlagParsing: true, RunE: func(*cobra.Command, []string) error {
			return fmt.Errorf("hitless %s needs Linux, and this is %s/%s: run it on a machine with Linux", name, runtime.GOOS, runtime.GOARCH)
		}}
	}
	return []*cobra.Command{needs("lab", "A lab as a cluster for other programs"), needs("proxier", "Run the bundled IPVS proxier")}
}
