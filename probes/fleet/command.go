package fleet

import (
	"encoding/json"
	"fmt"
	"net"
	"os"

	"github.com/spf13/cobra"

	"github.com/hitless/hitless/probes"
)

// WorkerName is the name of the worker's (hidden) subcommand, and LaneVariable the variable of its environment that has the lane.
const (
	WorkerName   = "fleet-worker"
	LaneVariable = "HITLESS_LANE"
)

// Command is a worker as a program.
func Command() *cobra.Command {
	var listen string
	c := &cobra.Command{
		Use:    WorkerName,
		Short:  "probe the lane in $" + LaneVariable + " when asked over HTTP to, and keep the attempts until they are fetched",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			var lane probes.Lane
			if err := json.Unmarshal([]byte(os.Getenv(LaneVariable)), &lane); err != nil {
				return fmt.Errorf("reading the lane in $%s: %w", LaneVariable, err)
			}
			listener, err := new(net.ListenConfig).Listen(c.Context(), "tcp", listen)
			if err != nil {
				return fmt.Errorf("listening for questions: %w; with the network of its node another program may have that port", err)
			}
			fmt.Fprintf(c.OutOrStdout(), "%s asked at %s\n", WorkerName, listener.Addr())
			return Serve(c.Context(), listener, lane)
		},
	}
	c.Flags().StringVar(&listen, "listen", ":7707", "`ADDRESS` to be asked at")
	return c
}
