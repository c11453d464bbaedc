//go:build linux

package capture

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/hitless/hitless/record"
)

// Counted returns what the kernel has counted for a network namespace since it was made.
func Counted(p Place) (c record.Counters, err error) {
	err = p.Do(func() error {
		for _, from := range []struct {
			file, table, name string
			to                *int
		}{{"snmp", "Tcp", "ActiveOpens", &c.Opened}, {"netstat", "TcpExt", "TCPSynRetrans", &c.Repeated}} {
			text, err := os.ReadFile("/proc/thread-self/net/" + from.file) // of the thread's namespace
			if err != nil {
				return err
			}
			if *from.to, err = counter(text, from.table, from.name); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return c, fmt.Errorf("reading the counters of %s: %w", p.Name, err)
	}
	return c, nil
}

// counter finds a counter in the format of /proc/net/snmp: a line with names, and one with values.
func counter(text []byte, table, name string) (int, error) {
	var names []string
	for line := range bytes.Lines(text) {
		words := strings.Fields(string(line))
		if len(words) == 0 || words[0] != table+":" {
			continue
		}
		if names == nil {
			names = words
			continue
		}
		for i, n := range names {
			if n == name && i < len(words) {
				return strconv.Atoi(words[i])
			}
		}
	}
	return 0, fmt.Errorf("the kernel has no counter %s in %s", name, table)
}
