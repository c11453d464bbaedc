package results

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/record/recordtest"
)

// sampler repeats rows by writing the run that make gives into the folder.
func sampler(t *testing.T, make func(args []string) *recordtest.Lab) Sampler {
	return Sampler{Program: own, Dir: t.TempDir(), Log: func(string) {}, Now: time.Now, Execute: func(_ context.Context, args []string) error {
		l := make(args)
		if l == nil {
			return errors.New("no network")
		}
		writeRun(t, args[len(args)-1], l)
		return nil
	}}
}

// lossy is the class of the run with these arguments, as in kept.
func lossy(args []string) record.Class {
	return lost(!slices.Contains(args, "kube-proxy@v1.37.1/ipvs"))
}

func lost(nothing bool) record.Class {
	if nothing {
		return record.OK
	}
	return record.Refused
}

// A repetition of this program must have the same hash, one of another program the same outcome. Each has a red twin.
func TestRepetitions(t *testing.T) {
	for name, c := range map[string]struct {
		made   string // the program of the results
		make   func(args []string) *recordtest.Lab
		listed int
		why    string
	}{
		"this program, the same":     {own, func(a []string) *recordtest.Lab { return rollout(own, 1, lossy(a)) }, 0, ""},
		"this program, another hash": {own, func(a []string) *recordtest.Lab { return rollout(own, 2, lossy(a)) }, 2, "another history"},
		"another program, as before": {other, func(a []string) *recordtest.Lab { return rollout(own, 2, lossy(a)) }, 0, ""},
		"another verdict":            {other, func([]string) *recordtest.Lab { return rollout(own, 1, record.OK) }, 1, "another verdict: pass, not fail"},
		"another cause": {other, func(a []string) *recordtest.Lab {
			if lossy(a) == record.OK {
				return rollout(own, 1, record.OK)
			}
			return rollout(own, 1, record.Reset)
		}, 1, "other classes or causes"},
		"no result": {other, func([]string) *recordtest.Lab { return nil }, 2, "no network"},
	} {
		t.Run(name, func(t *testing.T) {
			top, _ := kept(t, c.made)
			s := sampler(t, c.make)
			found, of, err := s.Sample(t.Context(), check(t, top).Rows, 5, 7)
			if err != nil || of != 2 || len(found) != c.listed {
				t.Fatalf("%v, of %d: %+v", err, of, found)
			}
			for _, f := range found {
				if !strings.Contains(f.Why, c.why) {
					t.Errorf("%q, want %q", f.Why, c.why)
				}
			}
			if left, _ := os.ReadDir(s.Dir); len(left) != c.listed && c.why != "no network" {
				t.Errorf("%d folders are left, want those that differ", len(left))
			}
		})
	}
}

// The seed chooses the rows, each at most once.
func TestTheSeedChoosesTheSample(t *testing.T) {
	var rows []Row
	for i := range 50 {
		rows = append(rows, Row{Name: fmt.Sprint(i), Again: &Again{[]string{"run", fmt.Sprint(i)}, func(context.Context, string) (Row, error) { return Row{}, nil }}})
	}
	rows = append(rows, Row{Name: "without a command"})
	sample := func(seed int64) (names []string) {
		s := Sampler{Dir: t.TempDir(), Log: func(string) {}, Now: time.Now, Execute: func(_ context.Context, args []string) error { names = append(names, args[1]); return nil }}
		if _, of, err := s.Sample(t.Context(), rows, 10, seed); err != nil || of != 50 {
			t.Fatal(of, err)
		}
		return names
	}
	one, again, two := sample(1), sample(1), sample(2)
	if len(one) != 10 || !slices.Equal(one, again) || slices.Equal(one, two) || len(slices.Compact(slices.Sorted(slices.Values(one)))) != 10 {
		t.Errorf("%v, again %v, another seed %v", one, again, two)
	}
}

// The command of one run is that of its comparison with its own subject, kernel and seed.
func TestTheRunOfAComparison(t *testing.T) {
	for _, c := range []struct{ command, subject, want string }{
		{"hitless compare rollout --subject bundled --subject kube-proxy@v1.37.1/ipvs --runs 4 --controlplane replay --rate 50 --set rollouts=1", "bundled",
			"run rollout --subject bundled --seed 3 --controlplane replay --rate 50 --set rollouts=1"},
		{"hitless compare flap --subject bundled --subject kube-proxy@v1.37.1/ipvs --guest-kernel debian-12 --guest-kernel debian-13 --against debian-12 --runs 1", "kube-proxy@v1.37.1/ipvs on debian-13",
			"run flap --subject kube-proxy@v1.37.1/ipvs --seed 3 --guest-kernel debian-13"},
		{"hitless compare upgrade --subject kube-proxy@v1.36.1/ipvs --subject kube-proxy@v1.37.1/ipvs --against kube-proxy@v1.37.1/ipvs --runs 1 --set to=kube-proxy@v1.37.1/ipvs", "kube-proxy@v1.37.1/ipvs",
			"run upgrade --subject kube-proxy@v1.37.1/ipvs --seed 3 --set to=itself"},
		{"hitless compare upgrade --subject kube-proxy@v1.36.1/ipvs --subject kube-proxy@v1.37.1/ipvs --runs 1 --set to=kube-proxy@v1.37.1/ipvs", "kube-proxy@v1.36.1/ipvs",
			"run upgrade --subject kube-proxy@v1.36.1/ipvs --seed 3 --set to=kube-proxy@v1.37.1/ipvs"},
		{"hitless compare restart --subject bundled --subject exec:suites/selfcheck/faulty/flush-on-restart.yaml --loop --runs 8", "exec:flush-on-restart",
			"run restart --subject exec:suites/selfcheck/faulty/flush-on-restart.yaml --seed 3 --loop"},
	} {
		got, err := ofComparison(c.command, c.subject, 3)
		if err != nil || strings.Join(got, " ") != c.want {
			t.Errorf("%s of\n%s:\n%s, %v, want\n%s", c.subject, c.command, strings.Join(got, " "), err, c.want)
		}
	}
	for _, command := range []string{"", "rm -rf out", "hitless compare", "hitless compare rollout --kubeconfig /etc/kubernetes/admin.conf", "hitless compare rollout --out /etc", "hitless compare 'rollout"} {
		if args, err := ofComparison(command, "bundled", 1); err == nil {
			t.Errorf("%q is repeated as %q", command, args)
		}
	}
	for _, command := range []string{"hitless run rollout --kubeconfig x", "hitless run rollout --in-cluster", "hitless run rollout --out=/etc", "hitless clean out", "sh -c true"} {
		if a := ofCommand(command, readRun); a != nil {
			t.Errorf("%q is repeated as %q", command, a.Args)
		}
	}
}
