package guest

import (
	"fmt"

	"github.com/hitless/hitless/internal/routing"
	"github.com/hitless/hitless/lab/subject"
	"github.com/hitless/hitless/record"
)

// routingScenario checks Services of each kind on a node of its own. Its parameter `family` is ipv4 or ipv6. The history has a check
// for each case; package conformance judges them.
const routingScenario = "routing"

const familyKey = "family"

// checkRoutingParameters refuses other parameters, and subjects that do not serve the family by default.
func checkRoutingParameters(set map[string]string, s subject.Spec) error {
	for key := range set {
		if key != familyKey {
			return fmt.Errorf("--set %s: %s has the key %s only", key, routingScenario, familyKey)
		}
	}
	f, err := routing.ParseFamily(set[familyKey])
	if err != nil {
		return fmt.Errorf("--set %w", err)
	}
	return s.CheckFamily(record.Family(f))
}
