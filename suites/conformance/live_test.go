package conformance

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hitless/hitless/lab/replay"
	"github.com/hitless/hitless/lab/replay/replaytest"
)

// liveSpecs are specs of two runs, of which only that of policy needs the verb patch for Services.
const liveSpecs = "-ginkgo.focus=^conformance a Service proxy (quiet|policy-external) "

// liveCluster is an API server with three nodes. Its kubeconfig has the context c. wrote tells whether anything was made, changed or deleted.
func liveCluster(t *testing.T, wrap func(next http.Handler) http.Handler) (string, *atomic.Bool) {
	t.Helper()
	return liveClusterOf(t, []string{"worker-1", "worker-2", "worker-3"}, wrap)
}

func liveClusterOf(t *testing.T, nodes []string, wrap func(next http.Handler) http.Handler) (kubeconfig string, wrote *atomic.Bool) {
	t.Helper()
	server := replay.New()
	replaytest.AddNodes(t, server, "192.0.2.1", nodes...)
	wrote = &atomic.Bool{}
	inner := server.Handler()
	noting := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if replaytest.Writes(r) {
			wrote.Store(true)
		}
		inner.ServeHTTP(w, r)
	})
	return replaytest.Serve(t, wrap(noting)), wrote
}

func asIs(next http.Handler) http.Handler { return next }

// liveSuite runs the suite on a live cluster. Without faults its runs are real ones.
func liveSuite(t *testing.T, env, faults string, args ...string) (dir, output string, failed bool) {
	t.Helper()
	dir = t.TempDir()
	all := append([]string{"-test.run=^TestConformance$", "-out=" + dir, liveSpecs}, args...)
	if faults != "" {
		all = append(all, "-pretend="+faults)
	}
	cmd := exec.Command(os.Args[0], all...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+env, "HOME="+t.TempDir())
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !asExit(err, &exit) {
		t.Fatal(err)
	}
	return dir, string(out), err != nil
}

// once fails the test unless the suite failed in one place with that text, and judged no spec.
func once(t *testing.T, dir, output string, failed bool, texts ...string) {
	t.Helper()
	r := readReport(t, dir)
	if !failed || r.Count(NotRun)+r.Count(Skipped) != len(r.Specs) || r.Count(NotRun) == 0 {
		t.Errorf("failed %v: %s\n%s", failed, r.Summary(), output)
	}
	if n := strings.Count(output, "[FAIL]"); n > 2 { // where it happens, and in Ginkgo's summary
		t.Errorf("%d failures:\n%s", n, output)
	}
	for _, text := range texts {
		if !strings.Contains(output, text) {
			t.Errorf("the output lacks %q:\n%s", text, output)
		}
	}
}

// Missing rights are said once, before the first run, also if only a later run needs them. All of them are named, and nothing was made.
func TestMissingRightsAreSaidOnce(t *testing.T) {
	for _, lacks := range [][]string{{"patch services"}, {"patch services", "create services"}} {
		kubeconfig, wrote := liveCluster(t, replaytest.Withhold(lacks...))
		dir, output, failed := liveSuite(t, "", "none", "-kubeconfig="+kubeconfig)
		once(t, dir, output, failed, append(lacks, "docs/clusters.md")...)
		if wrote.Load() {
			t.Errorf("without %q something was written", lacks)
		}
	}
	kubeconfig, _ := liveCluster(t, asIs)
	dir, output, failed := liveSuite(t, "", "none", "-kubeconfig="+kubeconfig)
	if r := readReport(t, dir); failed || r.Count(Passed) == 0 || r.Count(Passed)+r.Count(Skipped) != len(r.Specs) {
		t.Errorf("with all rights: %s\n%s", r.Summary(), output)
	}
}

// The report of a live cluster names no subject, which would be another proxy, and its command names the context.
func TestTheReportOfALiveClusterNamesNoSubject(t *testing.T) {
	kubeconfig, _ := liveCluster(t, asIs)
	dir, output, _ := liveSuite(t, "", "none", "-kubeconfig="+kubeconfig, "-context=c")
	r := readReport(t, dir)
	if r.Implementation.Subject != "" || r.Implementation.Name == "" || !strings.HasSuffix(r.Command, "-kubeconfig=FILE -context=c") {
		t.Errorf("%+v with %s\n%s", r.Implementation, r.Command, output)
	}
	if page, err := os.ReadFile(filepath.Join(dir, PageFile)); err != nil || !strings.Contains(string(page), "<h1>Conformance of "+r.Implementation.Name) {
		t.Errorf("%v: the page does not name the proxy of the cluster: %s", err, page)
	}
}

// Rights that only runs of other specs need are not asked for.
func TestOnlyTheRightsOfTheSelectionAreNeeded(t *testing.T) {
	kubeconfig, _ := liveCluster(t, replaytest.Withhold("patch services"))
	dir, output, failed := liveSuite(t, "", "none", "-kubeconfig="+kubeconfig, "-ginkgo.skip=policy")
	if r := readReport(t, dir); failed || r.Count(Passed) == 0 {
		t.Errorf("%s\n%s", r.Summary(), output)
	}
}

// A quota that forbids the first run is said once, with the cluster's message and advice, and leaves nothing.
func TestAnExhaustedQuotaIsSaidOnce(t *testing.T) {
	quota := apierrors.NewForbidden(schema.GroupResource{Resource: "namespaces"}, "", errors.New("exceeded quota: team, requested: count/namespaces=1"))
	kubeconfig, wrote := liveCluster(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/namespaces") {
				next.ServeHTTP(w, r)
				return
			}
			status := quota.ErrStatus
			status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(int(status.Code))
			_ = json.NewEncoder(w).Encode(status)
		})
	})
	dir, output, failed := liveSuite(t, "", "real", "-kubeconfig="+kubeconfig)
	once(t, dir, output, failed, "exceeded quota: team", "raise it")
	if wrote.Load() {
		t.Error("something was written")
	}
}

// A cluster with too few nodes for a run skips its specs, with the reason.
func TestASmallClusterSkipsRunsOfManyPods(t *testing.T) {
	kubeconfig, wrote := liveClusterOf(t, []string{"worker-1"}, asIs)
	dir, output, _ := liveSuite(t, "", "real", "-kubeconfig="+kubeconfig, "-ginkgo.skip=policy")
	r := readReport(t, dir)
	if got := stateOfSpec(t, r, "quiet new"); got.State != Skipped || !strings.Contains(strings.Join(got.Reasons, " "), "1 nodes") || r.ExitCode() != 2 || wrote.Load() {
		t.Errorf("%+v, exit code %d\n%s", got, r.ExitCode(), output)
	}
}

// A quota that is used up later, during the setup of the first run, is one failure too.
func TestAQuotaForPodsIsSaidOnce(t *testing.T) {
	kubeconfig, _ := liveCluster(t, asIs)
	dir, output, failed := liveSuite(t, "", "quiet:dead,policy-external:dead", "-kubeconfig="+kubeconfig)
	once(t, dir, output, failed, "before its first attempt")
}

// A cluster that gives Services no address is said once, and no second run is made.
func TestAClusterWithoutLoadBalancersIsSaidOnce(t *testing.T) {
	kubeconfig, _ := liveCluster(t, asIs)
	dir, output, failed := liveSuite(t, "", "quiet:unserved,policy-external:unserved", "-kubeconfig="+kubeconfig)
	once(t, dir, output, failed, "got no address")
	if runs, err := filepath.Glob(filepath.Join(dir, RunsDir, "*", "history")); err != nil || len(runs) != 1 {
		t.Errorf("%v, %v: want one run", runs, err)
	}
	// The twin: a later run without an address ends the suite, and keeps what was judged.
	dir, output, failed = liveSuite(t, "", "quiet:unserved", "-kubeconfig="+kubeconfig)
	r := readReport(t, dir)
	if n := strings.Count(output, "[FAIL]"); !failed || n > 2 {
		t.Errorf("%d failures, %s\n%s", n, r.Summary(), output)
	}
}

// The flags of e2e-framework name the cluster: -context takes the file of KUBECONFIG. The variable alone names none.
func TestTheEnvironmentOfE2EFrameworkNamesTheCluster(t *testing.T) {
	kubeconfig, _ := liveCluster(t, replaytest.Withhold("patch services"))
	dir, output, failed := liveSuite(t, kubeconfig, "none", "-context=c")
	once(t, dir, output, failed, "patch services")
	for name, c := range map[string]struct {
		env  string
		args []string
		want string
	}{
		"a namespace":            {kubeconfig, []string{"-context=c", "-namespace=mine"}, "namespace of its own"},
		"a context without file": {"", []string{"-context=c"}, "KUBECONFIG"},
		"an unknown context":     {kubeconfig, []string{"-context=other"}, "other"},
		"a subject too":          {kubeconfig, []string{"-context=c", "-subject=bundled"}, "leave one of them out"},
	} {
		if _, output, failed := liveSuite(t, c.env, "none", c.args...); !failed || !strings.Contains(output, c.want) {
			t.Errorf("%s: failed %v, want %q:\n%s", name, failed, c.want, output)
		}
	}
	dir, output, failed = liveSuite(t, kubeconfig, "none")
	if files, err := os.ReadDir(dir); failed || err != nil || len(files) > 0 {
		t.Errorf("KUBECONFIG alone: failed %v, %d files, %v:\n%s", failed, len(files), err, output)
	}
}
