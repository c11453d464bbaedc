package proxier

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/hitless/hitless/proxier/metrics"
)

func TestProxyMode(t *testing.T) {
	w := httptest.NewRecorder()
	metrics.New().Handler(false).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/proxyMode", nil))
	if w.Body.String() != "ipvs" {
		t.Errorf("/proxyMode is %q, want ipvs", w.Body)
	}
}

func TestProfilingNeedsFlag(t *testing.T) {
	for profiling, want := range map[bool]int{false: http.StatusNotFound, true: http.StatusOK} {
		w := httptest.NewRecorder()
		metrics.New().Handler(profiling).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/debug/pprof/", nil))
		if w.Code != want {
			t.Errorf("profiling %v: /debug/pprof/ is %d, want %d", profiling, w.Code, want)
		}
	}
}

func TestInvalidFlags(t *testing.T) {
	for flag, want := range map[string]string{
		"--nodeport-addresses=127.0.0.0/8":        "loopback",
		"--proxy-mode=iptables":                   "only ipvs",
		"--log-format=xml":                        "text or json",
		"--ipvs-scheduler=dh":                     "rr, sed, sh",
		"--cluster-cidr=10.0.0.0/99":              "--cluster-cidr",
		"--detect-local-mode=Magic":               "NodeCIDR, BridgeInterface",
		"--detect-local-mode=BridgeInterface":     "--pod-bridge-interface",
		"--detect-local-mode=InterfaceNamePrefix": "--pod-interface-name-prefix",
		"--kubeconfig=/does/not/exist":            "--kubeconfig",
		"--no-such-flag":                          "unknown flag",
		"--drain-interval=soon":                   "invalid",
		"--drain-interval=-1s":                    "--drain-interval is -1s",
		"--drain-period=-1m":                      "--drain-period is -1m",
		"--drain-gone-period=-1m":                 "--drain-gone-period is -1m",
		"--ipvs-sync-period=0s":                   "--ipvs-sync-period is 0s",
		"--ipvs-min-sync-period=-1s":              "--ipvs-min-sync-period is -1s",
		"--reconcile-period=-1s":                  "--reconcile-period is -1s",
		"--ipvs-udp-timeout=-1s":                  "--ipvs-udp-timeout is -1s",
	} {
		c := Command()
		c.SetArgs([]string{flag, "--master=http://127.0.0.1:1"})
		c.SetOut(&bytes.Buffer{})
		c.SetErr(&bytes.Buffer{})
		if err := c.ExecuteContext(context.Background()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one that contains %q", flag, err, want)
		}
	}
}

// The port of /healthz is open at virtual addresses exactly if it is served at all addresses.
func TestHealthPortAtVirtualAddresses(t *testing.T) {
	for at, want := range map[string]uint16{
		"0.0.0.0:10256": 10256, "[::]:10256": 10256, ":10256": 10256, ":http": 80,
		"127.0.0.1:10256": 0, "[fd00::1]:10256": 0, "localhost:10256": 0, "": 0, "10256": 0, ":none-such": 0,
	} {
		s := settings{healthz: at, detectLocal: "ClusterCIDR"}
		options, err := s.linuxOptions(nil, nil)
		if err != nil || options.HealthPort != want {
			t.Errorf("--healthz-bind-address=%s: port %d (%v), want %d", at, options.HealthPort, err, want)
		}
	}
}
