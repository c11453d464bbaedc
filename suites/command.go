package suites

import (
	"bytes"
	"context"
	"os/exec"
	"strings"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
)

// Command is a call of the suite's hitless that has not begun.
func Command(args ...string) *exec.Cmd {
	ginkgo.GinkgoHelper()
	program, err := Program()
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	return exec.Command(program, args...)
}

// Execute runs hitless to its end, and returns its exit code. Its output is shown if that is not the wanted one.
func Execute(ctx context.Context, want int, args ...string) int {
	ginkgo.GinkgoHelper()
	cmd := Command(args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	gomega.Expect(cmd.Start()).To(gomega.Succeed())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case <-ended:
	case <-ctx.Done():
		_ = cmd.Process.Kill()
		<-ended
	}
	code := cmd.ProcessState.ExitCode()
	if code != want {
		ginkgo.GinkgoWriter.Printf("hitless %s: exit code %d\n%s\n", strings.Join(args, " "), code, &out)
	}
	return code
}
