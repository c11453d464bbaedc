package vm

import (
	"bufio"
	"bytes"
	"os"
	"strings"
	"time"
)

// followConsole passes new console lines to line. stop reads the rest, ends the goroutine and returns the last lines.
// The serial output is a file without change events, so it is polled four times a second.
func followConsole(file string, line func(string)) (stop func() []string) {
	quit, done := make(chan struct{}), make(chan []string)
	go func() {
		var tail []string
		var rest []byte
		var at int64
		read := func() {
			data, n := readFrom(file, at)
			at += n
			rest = append(rest, data...)
			for {
				i := bytes.IndexByte(rest, '\n')
				if i < 0 {
					return
				}
				text := strings.TrimRight(string(rest[:i]), "\r")
				rest = rest[i+1:]
				if tail = append(tail, text); len(tail) > 200 {
					tail = tail[100:]
				}
				if line != nil {
					line(text)
				}
			}
		}
		tick := time.NewTicker(250 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				read()
			case <-quit:
				read()
				done <- append(tail, string(rest))
				return
			}
		}
	}()
	return func() []string { close(quit); return <-done }
}

func readFrom(file string, at int64) ([]byte, int64) {
	f, err := os.Open(file)
	if err != nil {
		return nil, 0
	}
	defer f.Close()
	if _, err := f.Seek(at, 0); err != nil {
		return nil, 0
	}
	var b bytes.Buffer
	n, _ := b.ReadFrom(bufio.NewReader(f))
	return b.Bytes(), n
}
