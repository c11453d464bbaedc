package analysis

import "testing"

// A title has the parameters without the quotes that a shell needs.
func TestTitleHasParametersWithoutQuotes(t *testing.T) {
	const command = "hitless run upgrade --subject 'kube-proxy@v1.37.1/ipvs?v=2' --seed 1 --set back=on --set 'to=kube-proxy@v1.37.1/ipvs?v=3&w=1'"
	if got, want := TitleOf("upgrade", command), "upgrade back=on to=kube-proxy@v1.37.1/ipvs?v=3&w=1"; got != want {
		t.Errorf("title %q, want %q", got, want)
	}
}
