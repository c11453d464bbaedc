package session

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/hitless/hitless/internal/version"
	"github.com/hitless/hitless/probes"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/reports"
)

// lane returns the measured lane. It looks up the target, and sends it nothing.
func (o Options) lane(ctx context.Context) (probes.Lane, error) {
	address, err := resolve(ctx, o.Target)
	if err != nil {
		return probes.Lane{}, err
	}
	host, _, _ := net.SplitHostPort(o.Target) // resolve has checked it
	if _, err := netip.ParseAddr(host); err == nil {
		return o.Lane(measuredID, address, "")
	}
	return o.Lane(measuredID, address, o.Target)
}

// Lane returns the lane of the options to an address. The host, unless it is empty, is the name in its requests. The error names the first
// option that is impossible.
func (o Options) Lane(id uint16, address netip.AddrPort, host string) (probes.Lane, error) {
	l := probes.Lane{ID: id, Client: "here", Target: address, Protocol: o.Protocol, Policy: o.Policy, Close: o.Close,
		Path: o.Path, Rate: o.Rate, DelayedAfter: o.DelayedAfter, SourcePrefix: o.Source, Host: host}
	if l.Rate == 0 {
		l.Rate = defaultRate
	}
	l = l.WithDefaults()
	l.Name = l.Protocol
	if l.KeepsConnections() {
		l.Fresh = freshID
	}
	if err := l.Validate(); err != nil {
		return l, err
	}
	if o.Duration < 0 {
		return l, fmt.Errorf("the duration %v is negative; give 0 to measure until Ctrl-C", o.Duration)
	}
	if o.Record != "" && o.Record != RecordAll && o.Record != record.RecordThinned {
		return l, fmt.Errorf("record %q is unknown; known are %s and %s", o.Record, RecordAll, record.RecordThinned)
	}
	return l, nil
}

// resolve looks up HOST:PORT. The address stays the target if the name's address changes later.
func resolve(ctx context.Context, target string) (netip.AddrPort, error) {
	host, service, err := net.SplitHostPort(target)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("target %q: %w; give HOST:PORT, such as 203.0.113.10:80 or [2001:db8::1]:80", target, err)
	}
	port, err := strconv.ParseUint(service, 10, 16)
	if err != nil || port == 0 {
		return netip.AddrPort{}, fmt.Errorf("target %q: port %q is not a number from 1 to 65535", target, service)
	}
	if address, err := netip.ParseAddr(host); err == nil {
		return netip.AddrPortFrom(address.Unmap(), uint16(port)), nil
	}
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("looking up the target %q: %w", host, err)
	}
	return netip.AddrPortFrom(found[0].Unmap(), uint16(port)), nil
}

// CheckTarget sends one request on a separate connection and sets the lane's expected answer: that of a known backend, or any with the
// same status. It returns an error if the target does not answer, because then the baseline would have failures.
func CheckTarget(ctx context.Context, l *probes.Lane) error {
	ctx, cancel := context.WithTimeout(ctx, l.DialDeadline+l.ReplyDeadline)
	defer cancel()
	if record.Datagrams(l.Protocol) {
		return checkUDPTarget(ctx, l)
	}
	conn, err := probes.DialBesideLanes(ctx, "tcp", l.Target.String())
	if err != nil {
		return fmt.Errorf("sending the target a request before measuring: %w; a target that does not answer cannot be measured", err)
	}
	defer conn.Close()
	if l.Protocol == probes.ProtocolTCPDial {
		return nil
	}
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline) // fails only on a closed connection, like the next call
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", l.Path, l.Host); err != nil {
		return fmt.Errorf("sending the target a request before measuring: %w", err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return fmt.Errorf("reading the target's answer before measuring: %w; attempts of %s are HTTP requests, and --protocol %s measures any TCP port", err, l.Protocol, probes.ProtocolTCPDial)
	}
	defer answer.Body.Close()
	if answer.StatusCode >= 500 {
		return fmt.Errorf("the target answers GET %s with %s: it is broken before any change; give a path that it serves with --path", l.Path, answer.Status)
	}
	if !isBackendAnswer(answer) {
		l.Status = answer.StatusCode
	}
	return l.Validate()
}

// checkUDPTarget sends the requests that a lane can use until one is answered. It repeats them, because a datagram may be lost.
func checkUDPTarget(ctx context.Context, l *probes.Lane) error {
	conn, err := probes.DialBesideLanes(ctx, "udp", l.Target.String())
	if err != nil {
		return fmt.Errorf("connecting a UDP socket to the target: %w", err)
	}
	defer conn.Close()
	var last error
	patience := l.ReplyDeadline / 4
	for ctx.Err() == nil {
		for _, try := range []struct {
			word   string
			status int
		}{{"attempt", 0}, {"echo", http.StatusOK}} {
			over := time.NewTimer(patience)
			answered, err := exchangeDatagram(conn, try.word, patience)
			if answered {
				l.Status = try.status
				return nil
			}
			last = err
			select { // a target that refuses at once is not asked at once again
			case <-over.C:
			case <-ctx.Done():
			}
		}
	}
	return fmt.Errorf("sending the target requests before measuring: %w; it must answer `attempt NUMBER`, as the lab's backend does, "+
		"or `echo NUMBER`, as agnhost netexec does", cmp.Or(last, ctx.Err()))
}

func exchangeDatagram(conn net.Conn, word string, patience time.Duration) (bool, error) {
	const number = "0/0"
	_ = conn.SetDeadline(time.Now().Add(patience)) // fails only on a closed connection
	if _, err := fmt.Fprintf(conn, "%s %s", word, number); err != nil {
		return false, err
	}
	answer := make([]byte, 512)
	n, err := conn.Read(answer)
	return err == nil && strings.Contains(string(answer[:n]), number), err
}

// isBackendAnswer reports whether an answer has the form of known backends, see probes.Lane.
func isBackendAnswer(answer *http.Response) bool {
	const most = 256 // more than the longest name of a pod
	if answer.StatusCode != http.StatusOK || len(answer.TransferEncoding) > 0 || answer.ContentLength < 0 || answer.ContentLength > most {
		return false
	}
	body, err := io.ReadAll(answer.Body)
	return err == nil && (answer.Header.Get("X-Hitless-Pod") != "" || !strings.ContainsAny(strings.TrimSpace(string(body)), " \t\r\n<>{}"))
}

// WriteHost writes host.json into a folder. It has the facts that must not change the history.
func (o Options) WriteHost(folder string, started time.Time) error {
	data, err := json.MarshalIndent(map[string]any{"command": o.Words, "started": started.UTC().Format(time.RFC3339Nano)}, "", "  ")
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, reports.HostFile), append(data, '\n'), 0o644)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w; give another folder with --out", reports.HostFile, err)
	}
	return nil
}

// record creates the history.
func (o Options) record(ctx context.Context, l probes.Lane) (*record.HistoryWriter, error) {
	run, err := o.Header(ctx, parameters(o, l), "target", "protocol", "policy", "close", "path", "status", "rate", "duration")
	if err != nil {
		return nil, err
	}
	run.Scenario, run.Nodes, run.Subject = Scenario, []string{}, record.Subject{Name: o.Target}
	return record.NewHistoryWriter(filepath.Join(o.Out, record.HistoryDir), run)
}

// Header returns what the headers of all records of this machine's probes have: its kernel, this program, the parameters, and the digest of
// those parameters that are inputs, in the order of their keys.
func (o Options) Header(ctx context.Context, parameters map[string]string, inputs ...string) (record.Run, error) {
	release, err := probes.KernelRelease()
	if err != nil {
		return record.Run{}, err
	}
	run := record.Run{Seed: 1, Clock: "real", Command: o.Command, Parameters: parameters,
		Kernel: record.Kernel{Kind: "host", Release: release}}
	if o.Record == record.RecordThinned {
		run.Record = record.RecordThinned
	}
	sum := sha256.New()
	for _, key := range inputs {
		fmt.Fprintf(sum, "%s=%s\n", key, parameters[key])
	}
	run.InputsSha256 = hex.EncodeToString(sum.Sum(nil))
	if run.ProgramSha256, err = version.OwnSum(ctx); err != nil {
		return record.Run{}, fmt.Errorf("reading the running program: %w", err)
	}
	return run, nil
}

func parameters(o Options, l probes.Lane) map[string]string {
	duration := "until it was ended"
	if o.Duration > 0 {
		duration = o.Duration.Round(time.Millisecond).String()
	}
	return map[string]string{"target": l.Target.String(), "protocol": l.Protocol, "policy": l.Policy, "close": l.Close,
		"path": l.Path, "status": strconv.Itoa(l.Status), "rate": strconv.FormatFloat(l.Rate, 'g', -1, 64), "duration": duration}
}
