//go:build netns

package proxier

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// asProgram makes the test binary run as the proxier.
const asProgram = "HITLESS_TEST_AS_PROXIER"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) == "" {
		os.Exit(m.Run())
	}
	c := Command()
	c.SetArgs(os.Args[1:])
	if c.ExecuteContext(context.Background()) != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

// proxierProcess prepares the program as user nobody with only the given capabilities.
func proxierProcess(output *bytes.Buffer, caps []uintptr, args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), asProgram+"=yes")
	cmd.Stdout, cmd.Stderr = output, output
	const nobody = 65534
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}, AmbientCaps: caps}
	return cmd
}

// After --init-only has run as root, the proxier needs only CAP_NET_ADMIN. Without it, the error names it.
func TestLeastPrivileges(t *testing.T) {
	loopback(t)
	cleanUp(t)
	args := []string{"--master=" + thinAPI(t), "--hostname-override=node-1", "--healthz-bind-address=127.0.0.1:10256", "--metrics-bind-address="}
	root := Command()
	root.SetArgs([]string{"--init-only"})
	if err := root.ExecuteContext(context.Background()); err != nil {
		if strings.Contains(err.Error(), "has no IPVS") {
			t.Skipf("no IPVS in this kernel: %v", err)
		}
		t.Fatalf("--init-only: %v", err)
	}
	var output bytes.Buffer
	if err := proxierProcess(&output, nil, args...).Run(); err == nil || !strings.Contains(output.String(), "CAP_NET_ADMIN") {
		t.Errorf("without any capability it ended with %v: %s", err, output.String())
	}
	output.Reset()
	cmd := proxierProcess(&output, []uintptr{unix.CAP_NET_ADMIN}, args...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	ready := func() bool {
		response, err := http.Get("http://127.0.0.1:10256/readyz")
		if err == nil {
			response.Body.Close()
		}
		return err == nil && response.StatusCode == http.StatusOK
	}
	for deadline := time.Now().Add(20 * time.Second); !ready(); time.Sleep(10 * time.Millisecond) {
		select {
		case err := <-ended:
			t.Fatalf("with CAP_NET_ADMIN it ended with %v: %s", err, output.String())
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited 20 s for /readyz: %s", output.String())
		}
	}
	if got, err := answer(); got != "pod" || err != nil {
		t.Errorf("reply through the proxier: %q, %v", got, err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("after SIGTERM it ended with %v: %s", err, output.String())
	}
}
