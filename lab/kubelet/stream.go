package kubelet

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

// executor runs commands in a container, or attaches to it.
type executor struct{ *containerRun }

// ExecInContainer runs a command to its end.
func (e executor) ExecInContainer(ctx context.Context, _, _, _ string, argv []string, in io.Reader, out, errOut io.WriteCloser, _ bool,
	_ <-chan remotecommand.TerminalSize, _ time.Duration) error {
	if len(argv) == 0 {
		return fmt.Errorf("the command is empty")
	}
	l := launch{argv: argv, env: e.launch.env, root: e.launch.root, dir: e.launch.dir}
	// Without these types nil would be a writer that is not nil.
	if out != nil {
		l.out = out
	}
	if errOut != nil {
		l.err = errOut
	}
	if in != nil {
		// A pipe, because a process ends though its client sends nothing.
		read, write, err := os.Pipe()
		if err != nil {
			return err
		}
		defer read.Close()
		l.in = read
		go func() {
			_, _ = io.Copy(write, in) // ends with the process or the client
			write.Close()
		}()
	}
	proc, err := e.sandbox.start(e.log+"-exec", l)
	if err != nil {
		return utilexec.CodeExitError{Err: err, Code: notStarted}
	}
	if err := await(ctx, proc, argv[0]); err != nil {
		return err
	}
	if code := exitCode(proc.ExitText()); code != 0 {
		return utilexec.CodeExitError{Err: fmt.Errorf("command terminated with exit code %d", code), Code: int(code)}
	}
	return nil
}

// notStarted is the exit code of a command that cannot be executed, as of shells.
const notStarted = 126

// AttachContainer copies what the container writes from now on, and its input if it has one.
func (e executor) AttachContainer(ctx context.Context, _, _, _ string, in io.Reader, out, errOut io.WriteCloser, _ bool,
	_ <-chan remotecommand.TerminalSize) error {
	if in != nil && e.input != nil {
		go func() {
			_, _ = io.Copy(e.input, in) // ends with the container or the client
			if e.inputOnce {
				e.input.Close()
			}
		}()
	}
	if out == nil {
		out = errOut
	}
	if out == nil {
		return nil
	}
	return follow(ctx, e.file, e.proc.Done(), out, followed{fromEnd: true})
}

// forwarder forwards connections to a pod.
type forwarder struct{ *pod }

// PortForward copies between a stream and a port of the pod's loopback until one of them ends.
func (f forwarder) PortForward(ctx context.Context, _, _ string, port int32, stream io.ReadWriteCloser) error {
	if f.sandbox == nil {
		return fmt.Errorf("pod %s has no network", f.name)
	}
	conn, err := f.sandbox.dial(ctx, hostPort("127.0.0.1", int(port)))
	if err != nil {
		return fmt.Errorf("forwarding to port %d of pod %s: %w", port, f.name, err)
	}
	defer conn.Close()
	var sent sync.WaitGroup
	sent.Go(func() {
		_, _ = io.Copy(conn, stream) // one side has ended
		if half, is := conn.(interface{ CloseWrite() error }); is {
			_ = half.CloseWrite()
		}
	})
	_, err = io.Copy(stream, conn)
	_ = stream.Close()
	sent.Wait()
	return err
}

// followed says which part of a log is wanted.
type followed struct {
	fromEnd bool
	follow  bool
	tail    int64 // lines; negative for all
	limit   int64 // bytes; 0 for all
}

// logPoll is the interval in which a log that is followed is read.
const logPoll = 100 * time.Millisecond

// follow writes the log and what is added to it until ended is closed.
func follow(ctx context.Context, file string, ended <-chan struct{}, to io.Writer, part followed) error {
	f, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("reading the container's log: %w", err)
	}
	defer f.Close()
	if part.fromEnd {
		if _, err := f.Seek(0, io.SeekEnd); err != nil {
			return err
		}
	}
	ticker := time.NewTicker(logPoll)
	defer ticker.Stop()
	for last := false; ; {
		if _, err := io.Copy(to, f); err != nil || last {
			return err
		}
		select {
		case <-ticker.C:
		case <-ended:
			last = true
		case <-ctx.Done():
			return nil
		}
	}
}

// serveLogs answers with the log of a container's last start, or of the one before.
func (k *kubelet) serveLogs(w http.ResponseWriter, r *http.Request) {
	part, previous, err := logOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	p := k.podOf(r.PathValue("namespace"), r.PathValue("pod"))
	if p == nil {
		http.Error(w, "no such pod is on "+k.name, http.StatusNotFound)
		return
	}
	file, ended := p.logOf(r.PathValue("container"), previous)
	if file == "" {
		http.Error(w, fmt.Sprintf("container %s of pod %s has no such log", r.PathValue("container"), p.name), http.StatusNotFound)
		return
	}
	text, err := lastPart(file, part)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/plain")
	_, _ = w.Write(text) // the client has gone
	if part.follow {
		_ = follow(r.Context(), file, ended, flusher{w}, followed{fromEnd: true})
	}
}

// flusher sends each piece at once.
type flusher struct{ http.ResponseWriter }

// Write writes and flushes.
func (f flusher) Write(data []byte) (int, error) {
	n, err := f.ResponseWriter.Write(data)
	_ = http.NewResponseController(f.ResponseWriter).Flush()
	return n, err
}

func logOptions(r *http.Request) (part followed, previous bool, err error) {
	query := r.URL.Query()
	part = followed{follow: query.Get("follow") == "true", tail: -1}
	for name, to := range map[string]*int64{"tailLines": &part.tail, "limitBytes": &part.limit} {
		if text := query.Get(name); text != "" {
			if *to, err = strconv.ParseInt(text, 10, 64); err != nil || *to < 0 {
				return part, false, fmt.Errorf("%s %q: give a number of at least 0", name, text)
			}
		}
	}
	for _, name := range []string{"sinceSeconds", "sinceTime"} {
		if query.Get(name) != "" {
			return part, false, fmt.Errorf("%s is not supported by the lab's kubelet, whose logs have no times", name)
		}
	}
	if query.Get("timestamps") == "true" {
		return part, false, fmt.Errorf("timestamps are not supported by the lab's kubelet, whose logs have no times")
	}
	return part, query.Get("previous") == "true", nil
}

// lastPart reads the wanted part of a log.
func lastPart(file string, part followed) ([]byte, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading the container's log: %w", err)
	}
	if part.tail >= 0 {
		lines := int64(0)
		for i := len(text); i > 0; i-- {
			if text[i-1] == '\n' && i < len(text) || part.tail == 0 {
				if lines++; lines >= part.tail {
					text = text[i:]
					break
				}
			}
		}
	}
	if part.limit > 0 {
		text = text[:min(int64(len(text)), part.limit)]
	}
	return text, nil
}

// logOf returns the log of a container's last start, or of the one before, and what is closed when its process has ended.
func (p *pod) logOf(name string, previous bool) (file string, ended <-chan struct{}) {
	type log struct {
		file  string
		ended <-chan struct{}
	}
	found := make(chan log, 1)
	over := make(chan struct{})
	close(over)
	p.post(func() {
		defer close(found)
		for _, c := range p.all() {
			start := c.starts - 1
			if previous {
				start--
			}
			if c.spec.Name != name || start < 0 {
				continue
			}
			l := log{p.k.Procs.LogFile(c.logName(start)), over}
			if c.run != nil && !previous {
				l.ended = c.run.proc.Done()
			}
			found <- l
		}
	})
	select {
	case l := <-found:
		return l.file, l.ended
	case <-p.done:
		return "", over
	}
}
