//go:build linux

package site

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/internal/guest"
	"github.com/hitless/hitless/lab/subject"
)

// A lab overwrites only the kubeconfig of an earlier lab, and says before it starts what is wrong with a file.
func TestLabsOverwriteNoOtherKubeconfig(t *testing.T) {
	if err := CheckHostPlatform(); err != nil {
		t.Skip(err)
	}
	const head = "apiVersion: v1\nkind: Config\n"
	dir := t.TempDir()
	texts := map[string]string{"users": head + "clusters: [{name: production, cluster: {server: \"https://192.0.2.1\"}}]\n", "notes": "buy milk\n",
		"lab": head + "extensions:\n- name: hitless-lab\n  extension: {pid: 1, net: 999999, user: -1}\n", "empty": ""}
	for name, text := range texts {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const another = "give another file with --kubeconfig"
	for file, want := range map[string]string{"users": "was not written by `hitless lab up`", "notes": "was not written by `hitless lab up`", ".": another, "users/config": another} {
		// Without a program no lab would start.
		err := HoldLab(t.Context(), Call{}, LabOptions{Kernel: guest.KernelHost}, guest.Plan{}, subject.Bundled, filepath.Join(dir, file), func() { t.Error("it is up") })
		if !isUsage(err) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), another) {
			t.Errorf("%s: %v, want a usage error with %q", file, err, want)
		}
	}
	for _, file := range []string{"lab", "empty", "new", "new/config"} {
		if err := checkLabFile(t.Context(), filepath.Join(dir, file)); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
	for name, text := range texts {
		if now, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(now) != text {
			t.Errorf("%s has %q now (%v)", name, now, err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != len(texts) {
		t.Errorf("%v are in the folder (%v)", left, err)
	}
}

// A lab that sends its message without the namespace is an error that tells so, and no operation that is not supported.
func TestLabWithoutANamespace(t *testing.T) {
	for _, rights := range [][]byte{nil, unix.UnixRights(0)} {
		ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		told := os.NewFile(uintptr(ends[0]), "ready")
		err = errors.Join(unix.Sendmsg(ends[1], []byte("{}"), rights, nil, 0), unix.Close(ends[1]))
		if err != nil {
			t.Fatal(err)
		}
		_, client, err := receiveReady(told)
		if (err == nil) != (rights != nil) || errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("with %d bytes of rights: descriptor %d, %v", len(rights), client, err)
		}
		if err == nil {
			unix.Close(client)
		}
		told.Close()
	}
}
