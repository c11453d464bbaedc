package proxier

import (
	"io"
	"log/slog"
	"testing"
)

// The rules are made by flags that only the proxier itself is sure to be given: who does one thing and ends leaves them alone.
func TestWhoMakesRules(t *testing.T) {
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	for _, test := range []struct {
		what            string
		m               migration
		keeps, readOnly bool
	}{
		{what: "the proxier"},
		{what: "--init-only", m: migration{settings: settings{initOnly: true}}, keeps: true},
		{what: "--cleanup", m: migration{settings: settings{cleanup: true}}, keeps: true},
		{what: "migrate to bundled", m: migration{from: "ipvs", to: bundled}},
		{what: "migrate to bundled --dry-run", m: migration{from: "ipvs", to: bundled, dryRun: true}, readOnly: true},
		{what: "migrate back", m: migration{from: bundled, to: "ipvs"}, keeps: true},
	} {
		test.m.log, test.m.detectLocal = log, "ClusterCIDR"
		options, err := test.m.settings.kernel(nil, log)
		if test.m.to != "" {
			options, err = test.m.kernelOptions()
		}
		if err != nil || options.KeepRules != test.keeps || options.ReadOnly != test.readOnly {
			t.Errorf("%s: keeps the rules: %v, reads only: %v, error %v", test.what, options.KeepRules, options.ReadOnly, err)
		}
	}
}
