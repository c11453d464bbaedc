package chart

import "testing"

// The pods of each node become one row, with the sums of their answers.
func TestManyPodsAreARowForEachNode(t *testing.T) {
	var pods []*answers
	for i := range 20 {
		pods = append(pods, &answers{name: "web", node: []string{"node-1", "node-2"}[i%2], total: i, plain: []int{1, i}, terminated: []int{0, 1}})
	}
	rows := byNode(pods)
	if len(rows) != 2 || rows[0].name != "pods on node-1" || rows[0].detail != "10 pods in all" || rows[0].plain[0] != 10 || rows[0].plain[1]+rows[1].plain[1] != 190 || rows[1].terminated[1] != 10 {
		t.Errorf("%+v %+v", rows[0], rows[1])
	}
}
