package analysis

import (
	"slices"
	"testing"
)

// A title has the parameters without the quotes that a shell needs.
func TestTitleHasParametersWithoutQuotes(t *testing.T) {
	const command = "hitless run upgrade --subject 'kube-proxy@v1.37.1/ipvs?v=2' --seed 1 --set back=on --set 'to=kube-proxy@v1.37.1/ipvs?v=3&w=1'"
	if got, want := TitleOf("upgrade", command), "upgrade back=on to=kube-proxy@v1.37.1/ipvs?v=3&w=1"; got != want {
		t.Errorf("title %q, want %q", got, want)
	}
}

// A value with spaces is a part of the title, and no other parameters give the same one.
func TestTitlesWithSpaces(t *testing.T) {
	titles := map[string]string{}
	for _, command := range []string{"--set 'k=a b'", "--set k=a", "--set 'k=a c'", "--set k=a --set b", "--set 'k=a --nodes 5'", "--set 'k=it'\\''s'"} {
		for _, title := range []string{TitleOf("upgrade", "hitless run upgrade "+command), SettingsOf("upgrade", "hitless run upgrade --seed 1 "+command)} {
			if other, has := titles[title]; has && other != command {
				t.Errorf("%s and %s have the title %s", command, other, title)
			}
			titles[title] = command
		}
	}
	if got := Changed("hitless run upgrade --set 'k=a b' --nodes 5 --set x=y"); !slices.Equal(got, []string{"k=a b", "x=y"}) {
		t.Errorf("changed are %q", got)
	}
}

// The settings have what a run measures, whatever else its command has.
func TestSettingsAreThoseOfTheMeasurement(t *testing.T) {
	for command, want := range map[string]string{
		"hitless run rollout --subject bundled --seed 3 --set replicas=2":                                     "rollout replicas=2",
		"hitless run rollout --subject bundled --seed 3 --nodes 5 --budget b.yaml --set replicas=2":           "rollout replicas=2 --budget b.yaml --nodes 5",
		"hitless run rollout --seed 3 --rate 50 --nodes=5":                                                    "rollout --nodes 5 --rate 50",
		"hitless run rollout --kubeconfig FILE --target nodePort --fleet-everywhere --fleet-rate 2 --nodes 3": "rollout --fleet-everywhere --fleet-rate 2 --nodes 3 --target nodePort",
		"hitless probe '[::1]:80' --path '/a b' --policy reuse:5s --protocol http-reuse --duration 3s":        "rollout --path '/a b' --policy reuse:5s --protocol http-reuse",
		"hitless run rollout --set 'k=a --rate 7' --budget '/some folder/b.yaml' --rate 50":                   "rollout 'k=a --rate 7' --budget b.yaml --rate 50",
		"": "rollout",
	} {
		if got := SettingsOf("rollout", command); got != want {
			t.Errorf("%s has the settings %q, want %q", command, got, want)
		}
	}
}
