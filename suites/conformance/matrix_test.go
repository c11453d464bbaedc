package conformance

import (
	"bytes"
	"crypto/ed25519"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/hitless/hitless/internal/testfiles"
	"github.com/hitless/hitless/record"
)

// The shards of a call, joined, are the report of the whole call. A missing or repeated shard, or one of another seed, is an error.
func TestJoinedShardsEqualTheWhole(t *testing.T) {
	filter := "-ginkgo.label-filter=rollout || drain"
	whole, _, _ := suite(t, "drain:udp-fresh", filter)
	var dirs []string
	for _, shard := range []string{"2/3", "1/3", "3/3"} {
		dir, _, _ := suite(t, "drain:udp-fresh", filter, "-shard="+shard)
		if r := readReport(t, dir); r.Selected.Shard != shard || r.Selected.Specs <= len(r.Specs) {
			t.Errorf("shard %s: %+v with %d specs", shard, r.Selected, len(r.Specs))
		}
		dirs = append(dirs, dir)
	}
	joined, err := ReadAll(t.Context(), dirs, nil)
	if err != nil || len(joined) != 1 {
		t.Fatalf("%d reports: %v", len(joined), err)
	}
	got, err := encode(joined[0], nil)
	if err != nil {
		t.Fatal(err)
	}
	if want, err := os.ReadFile(filepath.Join(whole, File)); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the joined shards are not the whole (%v):\n%s", err, got)
	}
	other, _, _ := suite(t, "none", filter, "-shard=2/3", "-seed=2")
	for name, dirs := range map[string][]string{"missing": dirs[:2], "twice": append(slices.Clone(dirs), dirs[0]), "another seed": {dirs[1], dirs[2], other}} {
		if _, err := ReadAll(t.Context(), dirs, nil); err == nil {
			t.Errorf("%s: the shards were joined", name)
		}
	}
}

// A shard without a spec has a report, in place of an older one, and the shards can be joined.
func TestAShardWithoutSpecsHasAReport(t *testing.T) {
	filter := "-ginkgo.label-filter=rollout && !udp && core"
	whole, _, _ := suite(t, "none", filter)
	var dirs []string
	empty := 0
	for part := range 9 {
		dir := t.TempDir()
		testfiles.Write(t, dir, File, []byte("of an older call\n"))
		if out, err := command(dir, "none", filter, fmt.Sprintf("-shard=%d/9", part+1)).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if len(readReport(t, dir).Specs) == 0 {
			empty++
		}
		dirs = append(dirs, dir)
	}
	joined, err := ReadAll(t.Context(), dirs, nil)
	if err != nil || len(joined) != 1 || empty == 0 {
		t.Fatalf("%d reports, %d shards without specs: %v", len(joined), empty, err)
	}
	if want := readReport(t, whole); !reflect.DeepEqual(joined[0], want) {
		t.Errorf("%+v, want %+v", joined[0], want)
	}
}

// A shard that skipped all of its specs may not know the program; the whole has that of the others. Shards of two programs are no whole.
func TestShardsOfOneProgramAreJoined(t *testing.T) {
	shardOf := func(shard, program string, spec string, state State) *Report {
		r := reportOf("new", "v1.26.0", map[string]State{spec: state})
		r.Selected.Shard, r.Selected.Specs, r.Program = shard, 2, program
		return r
	}
	one, other := strings.Repeat("1", 64), strings.Repeat("2", 64)
	for _, programs := range [][2]string{{one, ""}, {"", one}, {one, one}} {
		joined, err := Join([]*Report{shardOf("1/2", programs[0], "quiet new", Skipped), shardOf("2/2", programs[1], "drain new", Passed)})
		if err != nil || len(joined) != 1 || joined[0].Program != one || len(joined[0].Specs) != 2 {
			t.Errorf("%q: %d reports, %v", programs, len(joined), err)
		}
	}
	if _, err := Join([]*Report{shardOf("1/2", one, "quiet new", Skipped), shardOf("2/2", other, "drain new", Passed)}); err == nil || !strings.Contains(err.Error(), "program") {
		t.Errorf("the shards of two programs: %v", err)
	}
}

// Shards of two proxies or of two sites are no whole.
func TestShardsOfOneProxyAndSiteAreJoined(t *testing.T) {
	shardOf := func(shard, spec string) *Report {
		r := reportOf("exec:proxy.yaml", "v1", map[string]State{spec: Passed})
		r.Selected.Shard, r.Selected.Specs, r.Site = shard, 2, Site{Kernel: "vm 6.1.0", ControlPlane: "kube v1.37.1"}
		return r
	}
	for name, change := range map[string]func(r *Report){
		"version": func(r *Report) { r.Implementation.Version = "v2" }, "name": func(r *Report) { r.Implementation.Name = "cilium" },
		"kernel": func(r *Report) { r.Site.Kernel = "vm 5.10.0" }, "nothing": func(*Report) {},
	} {
		one, other := shardOf("1/2", "quiet new"), shardOf("2/2", "drain new")
		change(other)
		if _, err := Join([]*Report{one, other}); (err == nil) != (name == "nothing") {
			t.Errorf("the shards differ in %s: %v", name, err)
		}
	}
}

func reportOf(subject, version string, states map[string]State) *Report {
	r := &Report{Implementation: Implementation{Subject: subject, Name: "kube-proxy", Version: version, Mode: "iptables"}}
	for _, s := range Catalog() {
		if state := states[s.Name]; state != "" {
			r.Specs = append(r.Specs, Result{Name: s.Name, Labels: s.Labels(), State: state})
		}
	}
	return r
}

func TestTheMatrixSaysWhatFailedAndSinceWhen(t *testing.T) {
	all := []*Report{
		reportOf("new", "v1.26.0", map[string]State{"drain new": Failed, "quiet new": Passed}),
		reportOf("old", "v1.9.0", map[string]State{"drain new": Passed, "quiet new": Skipped}),
		reportOf("oldest", "v1.8.1", map[string]State{"drain new": Passed}),
		reportOf("less", "v1.10.0", map[string]State{"drain fresh": Passed}), // the failed spec did not run
	}
	m, err := NewMatrix(all)
	if err != nil {
		t.Fatal(err)
	}
	cell := func(feature, subject string) Cell {
		i := slices.IndexFunc(m.Rows, func(r Row) bool { return r.Feature == feature })
		if i < 0 {
			t.Fatalf("the matrix has no row %s", feature)
		}
		return m.Rows[i].Cells[slices.Index(m.Subjects, subject)]
	}
	if c := cell("drain", "new"); c.State != "failed" || !slices.Equal(c.Failed, []string{"drain new"}) || c.Since != "old" {
		t.Errorf("the new version's drain is %+v", c)
	}
	if a, b, c := cell("drain", "old"), cell("undisturbed", "old"), cell("undisturbed", "oldest"); a.State != "supported" || b.State != "undecided" || c.State != "" {
		t.Errorf("%+v, %+v, %+v", a, b, c)
	}
	if slices.ContainsFunc(m.Rows, func(r Row) bool { return r.Feature == "sctp" }) {
		t.Error("the matrix has a row that no report knows")
	}
	if _, err := NewMatrix(append(all, all[0])); err == nil {
		t.Error("two reports of one subject make a matrix")
	}
}

func TestDamagedReportsAreRefused(t *testing.T) {
	dir, _, _ := suite(t, "none", "-ginkgo.focus= flap ")
	data, err := os.ReadFile(filepath.Join(dir, File))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Read(t.Context(), dir, nil); err != nil {
		t.Fatal(err)
	}
	for _, change := range [][2]string{{"schemaVersion: 1", "schemaVersion: 2"}, {"kind: ConformanceSuiteReport", "kind: Other"}, {"promise:", "promis:"}, {"seed: 1", "seed: one"}} {
		text, _, _ := bytes.Cut(data, []byte(sealLine))
		damaged := seal(bytes.Replace(text, []byte(change[0]), []byte(change[1]), 1), nil)
		if err := os.WriteFile(filepath.Join(dir, File), damaged, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(t.Context(), dir, nil); err == nil || bytes.Equal(damaged, data) {
			t.Errorf("%q for %q was read", change[1], change[0])
		}
	}
	if _, err := Read(t.Context(), t.TempDir(), nil); err == nil {
		t.Error("a folder without a report was read")
	}
}

// A report with one changed byte is refused, whatever the byte says.
func TestChangedReportsAreRefused(t *testing.T) {
	dir, _, _ := suite(t, "none", "-ginkgo.focus= flap ")
	data, err := os.ReadFile(filepath.Join(dir, File))
	if err != nil {
		t.Fatal(err)
	}
	for i := range data {
		data[i] ^= 1
		if err := checkSeal(data, nil); err == nil {
			t.Errorf("byte %d was changed, and the report was read", i)
		}
		data[i] ^= 1
	}
	signed := seal(bytes.Clone(data[:bytes.LastIndex(data, []byte(sealLine))]), signingKey(1))
	for name, changed := range map[string][]byte{"with lines after the signature": append(bytes.Clone(signed), "seed: 2\n"...), "without its last line": data[:bytes.LastIndex(data, []byte(sealLine))], "with a line more": append(bytes.Clone(data), "seed: 2\n"...)} {
		if err := os.WriteFile(filepath.Join(dir, File), changed, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(t.Context(), dir, nil); err == nil {
			t.Errorf("a report %s was read", name)
		}
	}
}

func signingKey(seed byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize))
}

// A signed report is read with its own key and without one; other keys and reports without a signature are refused where a key is demanded.
func TestSignedReports(t *testing.T) {
	dir, _, _ := suite(t, "none", "-ginkgo.focus= flap ")
	r, err := Read(t.Context(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	public := func(seed byte) ed25519.PublicKey { return signingKey(seed).Public().(ed25519.PublicKey) }
	if _, err := Read(t.Context(), dir, public(1)); err == nil {
		t.Error("a report without a signature was read with a key")
	}
	if err := Write(dir, r, signingKey(1), nil); err != nil {
		t.Fatal(err)
	}
	for name, key := range map[string]ed25519.PublicKey{"without a key": nil, "with its key": public(1)} {
		if _, err := Read(t.Context(), dir, key); err != nil {
			t.Errorf("a signed report is not read %s: %v", name, err)
		}
	}
	if _, err := Read(t.Context(), dir, public(2)); err == nil {
		t.Error("a report was read that another key has signed")
	}
	data, err := os.ReadFile(filepath.Join(dir, File))
	if err != nil {
		t.Fatal(err)
	}
	for i := range data {
		data[i] ^= 1
		if err := checkSeal(data, public(1)); err == nil {
			t.Errorf("byte %d of a signed report was changed, and the report was read", i)
		}
		data[i] ^= 1
	}
}

// A kept report says when and with what its runs were made; the one in the folder does not. One of other folders, or that was changed, is not kept.
func TestKeptReports(t *testing.T) {
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), File)
	r := reportOf("new", "v1.26.0", map[string]State{"ipv4 affinity": Passed, "ipv4 UDP": Failed})
	r.APIVersion, r.Kind, r.SchemaVersion, r.Seed, r.Program = "hitless/v1", "ConformanceSuiteReport", ReportVersion, 1, ""
	r.Selected.Specs, r.Selected.Catalog = len(r.Specs), len(Catalog())
	for i := range r.Specs {
		r.Specs[i].Run, r.Specs[i].Reasons = "runs/routing-ipv4", []string{}
		r.Specs[i].Promise, r.Specs[i].Source = "p", "s"
	}
	r.conclude()
	if err := Write(dir, r, nil, nil); err != nil {
		t.Fatal(err)
	}
	if err := Keep(t.Context(), dir, file); err == nil {
		t.Error("a report without the folders of its runs was kept")
	}
	if err := os.MkdirAll(filepath.Join(dir, "runs/routing-ipv4"), 0o755); err != nil {
		t.Fatal(err)
	}
	testfiles.Write(t, filepath.Join(dir, "runs/routing-ipv4"), record.HostFile, []byte(`{"started": "2026-11-27T15:23:43Z", "toolPackages": ["nft_1"]}`))
	if err := Keep(t.Context(), dir, file); err != nil {
		t.Fatal(err)
	}
	kept, err := Read(t.Context(), filepath.Dir(file), nil)
	if err != nil || len(kept.Made) != 1 || kept.Made[0].Run != "runs/routing-ipv4" || kept.Made[0].Started != "2026-11-27T15:23:43Z" || kept.Made[0].Tools != record.ToolsDigest([]string{"nft_1"}) {
		t.Errorf("%+v, %v", kept, err)
	}
	if err := validate(t, file, "", ""); err != nil {
		t.Error(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if again := readReport(t, dir); len(again.Made) > 0 {
		t.Errorf("the report in the folder has the time: %+v", again.Made)
	}
	testfiles.Write(t, dir, File, bytes.Replace(text, []byte("failed"), []byte("passed"), 1))
	if err := Keep(t.Context(), dir, file); err == nil {
		t.Error("a report that was changed was kept")
	}
}
