package analysis

import "testing"

// A title has the parameters without the quotes that a shell needs.
func TestTitleHasParametersWithoutQuotes(t *testing.T) {
	const command = "hitless run upgrade --subject 'kube-proxy@v1.37.1/ipvs?v=2' --seed 1 --set back=on --set 'to=kube-proxy@v1.37.1/ipvs?v=3&w=1'"
	if got, want := TitleOf("upgrade", command), "upgrade back=on to=kube-proxy@v1.37.1/ipvs?v=3&w=1"; got != want {
		t.Errorf("title %q, want %q", got, want)
	}
}

// The settings have what a run measures, whatever else its command has.
func TestSettingsAreThoseOfTheMeasurement(t *testing.T) {
	for command, want := range map[string]string{
		"hitless run rollout --subject bundled --seed 3 --set replicas=2":                                     "rollout replicas=2",
		"hitless run rollout --subject bundled --seed 3 --nodes 5 --budget b.yaml --set replicas=2":           "rollout replicas=2 --budget b.yaml --nodes 5",
		"hitless run rollout --seed 3 --rate 50 --nodes=5":                                                    "rollout --nodes 5 --rate 50",
		"hitless run rollout --kubeconfig FILE --target nodeport --fleet-everywhere --fleet-rate 2 --nodes 3": "rollout --fleet-everywhere --fleet-rate 2 --nodes 3 --target nodeport",
		"hitless probe '[::1]:80' --path '/a b' --policy reuse:5s --protocol http-reuse --duration 3s":        "rollout --path '/a b' --policy reuse:5s --protocol http-reuse",
		"": "rollout",
	} {
		if got := SettingsOf("rollout", command); got != want {
			t.Errorf("%s has the settings %q, want %q", command, got, want)
		}
	}
}
