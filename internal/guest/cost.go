package guest

import (
	"fmt"
	"strconv"

	"github.com/hitless/hitless/internal/routing"
	"github.com/hitless/hitless/lab/subject"
)

// costScenario measures the cost of one change with few and with many other Services, on a node of its own. Its parameters `few` and
// `many` are numbers of Services. The history has a cost for each change; package conformance judges them.
const costScenario = "cost"

const fewKey, manyKey = "few", "many"

// checkCostParameters refuses other parameters and numbers.
func checkCostParameters(set map[string]string, _ subject.Spec) error {
	_, err := costNumbers(set)
	return err
}

// costNumbers are the numbers of other Services, ascending.
func costNumbers(set map[string]string) (numbers []int, err error) {
	for key := range set {
		if key != fewKey && key != manyKey {
			return nil, fmt.Errorf("--set %s: %s has the keys %s and %s only", key, costScenario, fewKey, manyKey)
		}
	}
	for _, key := range []string{fewKey, manyKey} {
		n, err := strconv.Atoi(set[key])
		if err != nil || n < 1 || n > routing.MaxOthers || len(numbers) > 0 && n <= numbers[0] {
			return nil, fmt.Errorf("--set %s=%s: give numbers of Services, %s less than %s, from 1 to %d", key, set[key], fewKey, manyKey, routing.MaxOthers)
		}
		numbers = append(numbers, n)
	}
	return numbers, nil
}
