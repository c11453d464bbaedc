package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/reports/compare"
	"github.com/hitless/hitless/suites/conformance"
)

func schemaCommand() *cobra.Command {
	schemas := map[string][]byte{"report": analysis.Schema, "compare": compare.Schema, "conformance": conformance.Schema}
	names := slices.Sorted(maps.Keys(schemas))
	return &cobra.Command{
		Use: "schema [report|compare|conformance]", Short: "Print the JSON Schema of report.json, compare.json or conformance.yaml", Args: cobra.MaximumNArgs(1),
		Long: `Print the JSON Schema (2020-12) of report.json, compare.json or conformance.yaml. Times are seconds from the start of the run; other
units stand in the fields' names or in their descriptions. A field is never taken away or given another meaning without
another schemaVersion.`,
		ValidArgs: names,
		RunE: func(cmd *cobra.Command, args []string) error {
			schema, known := schemas["report"], true
			if len(args) == 1 {
				schema, known = schemas[args[0]]
			}
			if !known {
				return fmt.Errorf("there is no schema %q; there are %s", args[0], strings.Join(names, ", "))
			}
			_, err := cmd.OutOrStdout().Write(schema)
			return err
		},
	}
}
