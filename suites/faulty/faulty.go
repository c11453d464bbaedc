// Package faulty describes the faulty proxier of suites/selfcheck/faulty as a subject.
package faulty

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// Package is the program of the faulty proxier.
const Package = "github.com/hitless/hitless/suites/selfcheck/faulty"

// Write writes a subject file of the faulty proxier: the program, its faults, and more flags of the proxier. name is that of the
// subject in reports.
func Write(file, name, program string, faults, flags []string) error {
	args := []string{"--kubeconfig={kubeconfig}", "--hostname-override={node}", "--cluster-cidr={clusterCIDR}"}
	for _, f := range faults {
		args = append(args, "--fault="+f)
	}
	var list []string
	for _, a := range append(args, flags...) {
		list = append(list, fmt.Sprintf("%q", a))
	}
	fallback := "on"
	if slices.Contains(flags, "--terminating-fallback=false") {
		fallback = "off"
	}
	text := fmt.Sprintf("name: %s\nversion: faulty\nmode: ipvs\nprogram: %s\nargs: [%s]\ntools: [nft]\n"+
		"ready: {url: \"http://127.0.0.1:10256/healthz\"}\nterminatingFallback: %s\n", name, program, strings.Join(list, ", "), fallback)
	return os.WriteFile(file, []byte(text), 0o644)
}
