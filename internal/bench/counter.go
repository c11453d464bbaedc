//go:build linux

package bench

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// counter counts the netlink requests of all programs by kprobes on the kernel functions that handle one request each. nftables
// splits its transactions first and has one such function for each kind of change.
type counter struct{ dir string }

// handlers are the probed functions. nfnetlink_rcv_msg counts requests of nfnetlink other than changes of nftables.
var handlers = []string{
	"genl_rcv_msg", "rtnetlink_rcv_msg", "nfnetlink_rcv_msg",
	"nf_tables_newtable", "nf_tables_deltable", "nf_tables_newchain", "nf_tables_delchain", "nf_tables_newrule", "nf_tables_delrule",
	"nf_tables_newset", "nf_tables_delset", "nf_tables_newsetelem", "nf_tables_delsetelem",
}

func newCounter() (*counter, error) {
	const at = "/sys/kernel/tracing"
	if err := unix.Mount("tracefs", at, "tracefs", 0, ""); err != nil && !errors.Is(err, unix.EBUSY) {
		return nil, fmt.Errorf("mounting tracefs: %w", err)
	}
	c := &counter{at}
	// Hits are counted without tracing.
	if err := c.write("tracing_on", "0", os.O_WRONLY); err != nil {
		return nil, err
	}
	for _, f := range handlers {
		if err := c.write("kprobe_events", "p:hitless/"+f+" "+f+"\n", os.O_WRONLY|os.O_APPEND); err != nil {
			return nil, fmt.Errorf("probing %s: %w", f, err)
		}
	}
	return c, nil
}

// during counts the requests while f runs. The probes are inactive otherwise, since each hit costs time.
func (c *counter) during(f func() error) (int, error) {
	if err := c.write("events/hitless/enable", "1", os.O_WRONLY); err != nil {
		return 0, fmt.Errorf("counting netlink messages: %w", err)
	}
	before, err := c.read()
	if err != nil {
		return 0, err
	}
	err = f()
	after, readErr := c.read()
	return after - before, errors.Join(err, readErr, c.write("events/hitless/enable", "0", os.O_WRONLY))
}

func (c *counter) write(file, text string, flags int) error {
	f, err := os.OpenFile(filepath.Join(c.dir, file), flags, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// read returns the number of requests since the start. Each line of the file has the name, hits and misses of a probe.
func (c *counter) read() (int, error) {
	data, err := os.ReadFile(filepath.Join(c.dir, "kprobe_profile"))
	if err != nil {
		return 0, fmt.Errorf("counting netlink messages: %w", err)
	}
	sum := 0
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if len(fields) != 3 {
			continue
		}
		hits, err := strconv.Atoi(fields[1])
		if err != nil {
			return 0, fmt.Errorf("counting netlink messages: %q: %w", line, err)
		}
		if fields[2] != "0" {
			return 0, fmt.Errorf("counting netlink messages: the probe missed some: %q", line)
		}
		sum += hits
	}
	return sum, nil
}
