package desired

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestSchedulerOfAService(t *testing.T) {
	for asked, test := range map[string]struct{ want, refused string }{
		"":         {"rr", ""},
		"mh":       {"mh", ""},
		" sh ":     {"sh", ""},
		"nonsense": {"rr", `"nonsense" is none of lc, mh`},
		"dh":       {"rr", `"dh" is none of lc, mh`}, // Linux has it, and no Service is served well by it
		"wlc":      {"rr", "no module"},
	} {
		o := options()
		o.NoScheduler = map[string]string{"wlc": "no module"}
		s := Compute(web, load(func(s *v1.Service) { s.Annotations = map[string]string{SchedulerAnnotation: asked} }), nil, o)
		for _, v := range s.Virtuals {
			if v.Scheduler != test.want {
				t.Errorf("asked for %q, %v has %s, want %s", asked, v.Key, v.Scheduler, test.want)
			}
		}
		if refused := len(s.Refused) == 1 && s.Refused[0].Reason == BadScheduler && strings.Contains(s.Refused[0].Detail, test.refused); len(s.Virtuals) == 0 ||
			refused != (test.refused != "") || !refused && len(s.Refused) > 0 {
			t.Errorf("asked for %q: refused %v, want %q", asked, s.Refused, test.refused)
		}
	}
}
