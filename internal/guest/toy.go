//go:build lab

package guest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/hitless/hitless/lab/topology"
	"github.com/hitless/hitless/record"
)

// ToyScenario is a small guest program for tests of the lab.
const ToyScenario = "toy"

func init() {
	standalones[ToyScenario] = standalone{unjudged: true}
	runners[ToyScenario] = toy
}

// toy uses all that could make two runs differ: sockets between namespaces, goroutines, timers and the kernel's random pool. So
// it tests in seconds whether runs are deterministic. Its parameter `end` makes it end badly: panic or hang.
func toy(ctx context.Context, plan Plan, recorder *recorder, now func() time.Duration) error {
	switch plan.Parameters["end"] {
	case "panic":
		if plan.Kernel == KernelHost {
			return errors.New("the toy panics in a VM only: the host's kernel is not its own")
		}
		return os.WriteFile("/proc/sysrq-trigger", []byte("c"), 0)
	case "hang":
		never := make(chan os.Signal, 1)
		signal.Notify(never, syscall.SIGUSR1) // a blocked program without this would be ended as deadlocked
		<-never
	}
	const n = 20
	net, err := topology.New(1)
	if err != nil {
		return err
	}
	defer net.Close()
	node := net.Nodes[0]
	listener, err := node.Listen(ctx, "tcp", node.Addr.String()+":7")
	if err != nil {
		return err
	}
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	for i := range n {
		text, err := toyRound(ctx, net, node.Addr.String()+":7", now)
		if err != nil {
			return fmt.Errorf("round %d: %w", i, err)
		}
		recorder.Event(record.Event{At: now(), Object: "toy", Text: text, Body: record.Log{}})
		timer := time.NewTimer(100 * time.Millisecond)
		select {
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func toyRound(ctx context.Context, net *topology.Network, address string, now func() time.Duration) (string, error) {
	random := make([]byte, 8)
	if _, err := rand.Read(random); err != nil {
		return "", err
	}
	begin := now()
	conn, err := net.Client.DialContext(ctx, "tcp", address)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if _, err := conn.Write(random); err != nil {
		return "", err
	}
	echo := make([]byte, len(random))
	if _, err := io.ReadFull(conn, echo); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s from %s in %d ns", hex.EncodeToString(echo), conn.LocalAddr(), now()-begin), nil
}
