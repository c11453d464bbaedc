package values

import "testing"

// A misspelt word has the word that was meant. A word that is far from all has none. An empty word is near a word of two letters.
func TestNearest(t *testing.T) {
	all := []string{"replicas", "rollouts", "trafficPolicy", "to"}
	for text, want := range map[string]string{"replica": "replicas", "rolouts": "rollouts", "traficpolicy": "trafficPolicy", "ot": "to", "colour": "", "": "to"} {
		if got := Nearest(text, all); got != want {
			t.Errorf("%q is near %q, want %q", text, got, want)
		}
	}
}
