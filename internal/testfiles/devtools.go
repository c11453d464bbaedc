//go:build browser

package testfiles

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// LoadTime is the CPU time that a browser takes to load a page from disk, with all of its scripts. Unlike wall time it does not
// depend on what else the machine does. A page that was loaded before has the code of the browser in memory.
func LoadTime(t *testing.T, page string) time.Duration {
	t.Helper()
	b := startBrowser(t)
	defer b.end() // the next page can take longer to write than a browser may live
	warm := Write(t, t.TempDir(), "warm.html", []byte("<!doctype html><title>warm</title><svg><rect width='1' height='1'/></svg><script>1</script>"))
	b.load(t, warm)
	before := b.cpu(t)
	b.load(t, page)
	return b.cpu(t) - before
}

// browser is a headless Chromium that is driven over its DevTools protocol.
type browser struct {
	to      *os.File
	from    *bufio.Reader
	session string // of its only tab
	last    int    // number of the last call
	end     func() // closes the browser, once
}

type message struct {
	ID     int             `json:"id"`
	Method string          `json:"method"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
}

func startBrowser(t *testing.T) *browser {
	t.Helper()
	in, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	from, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute) // the test's own ends before its clean-up
	cmd := exec.CommandContext(ctx, chromiumPath(t), append(ownArgs(filepath.Join(t.TempDir(), "profile")), "--remote-debugging-pipe", "about:blank")...)
	cmd.ExtraFiles = []*os.File{in, out} // 3 and 4, which the protocol uses
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	in.Close()
	out.Close()
	b := &browser{to: to, from: bufio.NewReader(from)}
	b.end = sync.OnceFunc(func() {
		b.session = ""
		b.call(t, "Browser.close", nil, nil)
		_ = cmd.Wait()
		cancel()
		to.Close()
		from.Close()
	})
	t.Cleanup(b.end)
	var targets struct {
		TargetInfos []struct{ TargetID, Type string }
	}
	b.call(t, "Target.getTargets", nil, &targets)
	for _, target := range targets.TargetInfos {
		if target.Type == "page" {
			var attached struct{ SessionID string }
			b.call(t, "Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
			b.session = attached.SessionID
		}
	}
	b.call(t, "Page.enable", nil, nil)
	b.call(t, "Performance.enable", nil, nil)
	return b
}

// call sends a command and reads the answers up to its own.
func (b *browser) call(t *testing.T, method string, params, result any) {
	t.Helper()
	b.last++
	send := map[string]any{"id": b.last, "method": method, "params": params}
	if params == nil {
		send["params"] = struct{}{}
	}
	if b.session != "" {
		send["sessionId"] = b.session
	}
	data, err := json.Marshal(send)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.to.Write(append(data, 0)); err != nil {
		t.Fatal(err)
	}
	answer := b.until(t, func(m message) bool { return m.ID == b.last })
	if answer.Error != nil {
		t.Fatalf("%s: %s", method, answer.Error)
	}
	if result != nil {
		if err := json.Unmarshal(answer.Result, result); err != nil {
			t.Fatal(err)
		}
	}
}

// until reads messages up to the first that is wanted.
func (b *browser) until(t *testing.T, wanted func(message) bool) message {
	t.Helper()
	for {
		data, err := b.from.ReadBytes(0)
		if err != nil {
			t.Fatalf("reading from the browser: %v", err)
		}
		var m message
		if err := json.Unmarshal(data[:len(data)-1], &m); err != nil {
			t.Fatal(err)
		}
		if wanted(m) {
			return m
		}
	}
}

// load opens a file, and returns after the page's event load.
func (b *browser) load(t *testing.T, file string) {
	t.Helper()
	b.call(t, "Page.navigate", map[string]any{"url": "file://" + file}, nil)
	b.until(t, func(m message) bool { return m.Method == "Page.loadEventFired" })
}

// cpu is the CPU time so far of the process that shows the page.
func (b *browser) cpu(t *testing.T) time.Duration {
	t.Helper()
	var got struct {
		Metrics []struct {
			Name  string
			Value float64
		}
	}
	b.call(t, "Performance.getMetrics", nil, &got)
	for _, m := range got.Metrics {
		if m.Name == "ProcessTime" {
			return time.Duration(m.Value * float64(time.Second))
		}
	}
	t.Fatal(fmt.Errorf("the browser does not tell the CPU time of a page: %v", got))
	return 0
}
