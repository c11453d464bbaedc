package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
)

func TestServeListensOnThisMachineAloneUntilItIsEnded(t *testing.T) {
	dir := t.TempDir()
	writeRun(t, dir)
	said(t, 3, "report", dir)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out, in := io.Pipe()
	cmd := root()
	cmd.SetArgs([]string{"report", "serve", dir, "--listen", "127.0.0.1:0"})
	cmd.SetOut(in)
	ended := make(chan error, 1)
	go func() {
		err := cmd.ExecuteContext(ctx)
		in.Close()
		ended <- err
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	address := regexp.MustCompile(`http://127\.0\.0\.1:\d+/`).FindString(line)
	if err != nil || address == "" {
		t.Fatalf("%q, %v", line, err)
	}
	answer, err := http.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	page, err := io.ReadAll(answer.Body)
	answer.Body.Close()
	if err != nil || !strings.Contains(string(page), `/run/report.html`) {
		t.Errorf("%v:\n%s", err, page)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("it ended with %v", err)
	}
}

func TestDefaultAddressIsLoopback(t *testing.T) {
	if listen := serveCommand().Flag("listen").DefValue; !strings.HasPrefix(listen, "127.0.0.1:") {
		t.Errorf("the default is %s", listen)
	}
}
