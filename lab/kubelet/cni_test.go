package kubelet

import (
	"context"
	"encoding/json"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hitless/hitless/lab/topology"
)

// standIn is a plugin that writes its environment and its configuration into a folder, and then does more.
func standIn(t *testing.T, more string) (cniCall, string) {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, "plugin")
	script := "#!/bin/sh\n/usr/bin/env | /bin/grep ^CNI > " + dir + "/env\n/bin/cat > " + dir + "/config\n" + more + "\n"
	if err := os.WriteFile(program, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	link := topology.PodLink{Host: "pod5", HostMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, MAC: net.HardwareAddr{2, 0, 0, 0, 0, 2},
		Addresses: []netip.Prefix{netip.MustParsePrefix("10.244.1.5/24")}, Gateways: []netip.Addr{netip.MustParseAddr("10.244.1.1")}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-0", Namespace: "default", UID: "u1"}}
	plugin := &Plugin{Path: program, Config: json.RawMessage(`{"cniVersion":"0.3.1","name":"chain","type":"plugin"}`)}
	return cniCall{plugin, func(c *exec.Cmd) error { return c.Run() }, pod, link, "/proc/1/ns/net"}, dir
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A plugin gets the pod, its namespace and the result of the lab's network, as the specification says.
func TestPluginGetsThePodAndThePreviousResult(t *testing.T) {
	call, dir := standIn(t, "")
	if err := call.add(t.Context(), func(err error) { t.Error(err) }); err != nil {
		t.Fatal(err)
	}
	env := read(t, filepath.Join(dir, "env"))
	for _, want := range []string{"CNI_COMMAND=ADD", "CNI_CONTAINERID=u1", "CNI_NETNS=/proc/1/ns/net", "CNI_IFNAME=eth0", "K8S_POD_NAME=web-0", "K8S_POD_NAMESPACE=default"} {
		if !strings.Contains(env, want) {
			t.Errorf("the environment lacks %s:\n%s", want, env)
		}
	}
	var config struct {
		Name       string
		PrevResult struct {
			CNIVersion string
			Interfaces []struct{ Name, Mac, Sandbox string }
			IPs        []struct {
				Interface        int
				Address, Gateway string
			}
		}
	}
	if err := json.Unmarshal([]byte(read(t, filepath.Join(dir, "config"))), &config); err != nil {
		t.Fatal(err)
	}
	prev := config.PrevResult
	if config.Name != "chain" || prev.CNIVersion != "0.3.1" || len(prev.Interfaces) != 2 || prev.Interfaces[0].Name != "pod5" || prev.Interfaces[1].Sandbox != call.netns ||
		len(prev.IPs) != 1 || prev.IPs[0].Address != "10.244.1.5/24" || prev.IPs[0].Gateway != "10.244.1.1" || prev.IPs[0].Interface != 1 {
		t.Errorf("the configuration is %+v", config)
	}
	if err := call.remove(); err != nil || !strings.Contains(read(t, filepath.Join(dir, "env")), "CNI_COMMAND=DEL") {
		t.Errorf("removing: %v", err)
	}
}

// A refused ADD is an error with the plugin's message, and ends with its context.
func TestARefusedAdd(t *testing.T) {
	call, _ := standIn(t, `echo '{"code":7,"msg":"no agent"}'; exit 1`)
	ctx, cancel := context.WithCancel(t.Context())
	var failures []string
	err := call.add(ctx, func(err error) {
		failures = append(failures, err.Error())
		cancel()
	})
	if err == nil || len(failures) != 1 || !strings.Contains(failures[0], "no agent") {
		t.Errorf("%v after %q", err, failures)
	}
}

// slowAttachment attaches when it is told to.
type slowAttachment struct {
	attached chan struct{}
	removed  chan struct{}
}

func (s slowAttachment) add(ctx context.Context, _ func(error)) error {
	select {
	case <-s.attached:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s slowAttachment) remove() error {
	close(s.removed)
	return nil
}

// The containers of a pod start when the plugin has attached it, and its link is removed after the plugin has detached it.
func TestPodsWaitForThePlugin(t *testing.T) {
	runTest(t, nil, func(b *testKubelet) {
		slow := slowAttachment{make(chan struct{}), make(chan struct{})}
		b.host.attachment = slow
		b.create(webPod("web"))
		b.at(3)
		b.wantEvents()
		close(slow.attached)
		b.at(5)
		b.wantEvents("3 web created", "3 web started", "4 web ready")
		b.remove("web", 0)
		b.at(7)
		select {
		case <-slow.removed:
		default:
			t.Error("the plugin did not detach the pod")
		}
		if b.host.sandboxes != 0 {
			t.Errorf("%d sandboxes are left", b.host.sandboxes)
		}
	})
}

// A pod that is deleted while it waits for the plugin ends, without a start of its containers.
func TestAPodIsDeletedWhileItWaitsForThePlugin(t *testing.T) {
	runTest(t, nil, func(b *testKubelet) {
		slow := slowAttachment{make(chan struct{}), make(chan struct{})}
		b.host.attachment = slow
		b.create(webPod("web"))
		b.at(3)
		b.remove("web", 0)
		b.at(5)
		if b.podExists("web") || len(b.host.starts) > 0 {
			t.Errorf("the pod exists: %v, starts: %q", b.podExists("web"), b.host.starts)
		}
	})
}
