package vm

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hitless/hitless/internal/cache"
)

// tryTime is how long QEMU may take to start and end in TryQEMU.
const tryTime = 30 * time.Second

// TryQEMU starts QEMU with the machine of a guest, but without a kernel and stopped, and ends it. The error says what QEMU refuses: an
// old or a cut-down one lacks a device or an option. Nothing is left behind.
func TryQEMU(ctx context.Context) error {
	path, err := exec.LookPath(QEMU)
	if err != nil {
		return fmt.Errorf("starting %s: %w", QEMU, err)
	}
	own, err := cache.NewTempDir("hitless-vm-")
	if err != nil {
		return fmt.Errorf("starting %s: %w", QEMU, err)
	}
	defer own.Remove()
	args := Boot{MemoryMB: 64}.commandLine(own.Path, 1<<20, false)
	args = args[:slices.Index(args, "-kernel")]
	ctx, cancel := context.WithTimeoutCause(ctx, tryTime, fmt.Errorf("it did not answer within %s", tryTime))
	defer cancel()
	m, theirs, err := newMonitor()
	if err != nil {
		return err
	}
	defer m.conn.Close()
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stderr, cmd.ExtraFiles, cmd.WaitDelay = &said, []*os.File{theirs}, time.Second
	err = cmd.Start()
	theirs.Close() // otherwise our end never sees QEMU close its own
	if err != nil {
		return fmt.Errorf("starting %s: %w", QEMU, cmp.Or(context.Cause(ctx), err))
	}
	stop := context.AfterFunc(ctx, func() { m.conn.Close() })
	defer stop()
	if err = m.handshake(); err == nil {
		_, err = m.execute("quit", nil)
	}
	ended := cmd.Wait()
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("starting %s: %w", QEMU, context.Cause(ctx))
	case said.Len() > 0 && ended != nil:
		return fmt.Errorf("%s refuses the lab's machine: %s", QEMU, strings.TrimSpace(strings.ReplaceAll(said.String(), own.Path+string(filepath.Separator), "")))
	case err != nil:
		return fmt.Errorf("starting %s: %w", QEMU, errors.Join(err, ended))
	}
	return nil
}
