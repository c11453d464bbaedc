package prober

import (
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// program is a probe worker that is another program.
type program struct {
	inProcess
	cmd *exec.Cmd
}

// startProgram starts a shell script as the probe worker. The error of its death goes to died.
func startProgram(t *testing.T, script string, died chan<- error) *Prober {
	t.Helper()
	begin := time.Now()
	p, err := Start(Config{Record: &tape{}, Now: func() time.Duration { return time.Since(begin) }, Seed: 1, Died: func(err error) { died <- err }},
		func(in io.Reader, out io.Writer) (Worker, error) {
			w := &program{inProcess{done: make(chan struct{})}, exec.Command("sh", "-c", script)}
			w.cmd.Stdin, w.cmd.Stdout = in, out
			err := w.cmd.Start()
			go func() {
				defer close(w.done)
				w.err = w.cmd.Wait()
			}()
			return w, err
		})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// The death of a probe worker is told at once, although no order follows.
func TestDeathOfTheWorkerIsTold(t *testing.T) {
	died := make(chan error, 1)
	p := startProgram(t, "read first; exit 3", died)
	select {
	case err := <-died:
		if !strings.Contains(err.Error(), "the probe worker ended with exit status 3") {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("the end of the worker was not reported within a minute")
	}
	if err := p.Close(); err == nil {
		t.Error("Close returns no error")
	}
}

// A worker that ends because it is told to has not died.
func TestClosedWorkerHasNotDied(t *testing.T) {
	p := startHere(t, &tape{})
	p.cfg.Died = func(err error) { t.Errorf("a worker that was closed died: %v", err) }
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	p.tellDeath() // as the goroutine that waits for the worker's end, which may not have run yet
}

// A worker whose attempts cannot be read does not keep Close waiting, although it writes for ever.
func TestDamagedAttemptsEndTheWorker(t *testing.T) {
	died := make(chan error, 1)
	p := startProgram(t, "exec yes", died)
	closed := make(chan error, 1)
	go func() { closed <- p.Close() }()
	select {
	case err := <-closed:
		if err == nil || !strings.Contains(err.Error(), "reading the probe worker's attempts") {
			t.Errorf("Close returns %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("Close did not return within a minute")
	}
}

// A worker that takes no order is ended and waited for, and there is no prober.
func TestWorkerWithoutInput(t *testing.T) {
	w := &inProcess{done: make(chan struct{})}
	p, err := Start(Config{Record: &tape{}, Now: func() time.Duration { return 0 }, Seed: 1}, func(in io.Reader, out io.Writer) (Worker, error) {
		go func() {
			defer close(w.done)
			_, _ = out.Write(nil) // waits for the prober to read
		}()
		return w, in.(io.Closer).Close()
	})
	if p != nil || err == nil {
		t.Errorf("%v, %v; want only an error", p, err)
	}
	select {
	case <-w.done:
	default:
		t.Error("the worker still runs")
	}
}
