// Package shard divides the runs of a call among machines.
package shard

import (
	"fmt"
	"strconv"
	"strings"
)

// Shard is one of several parts of a call. The zero value is the whole.
type Shard struct{ Part, Of int }

// Parse reads i/n, with 1 ≤ i ≤ n ≤ 100; empty for the whole. A number after "index-" counts from 0, as the indexes of a Kubernetes Job do:
// index-0/3 is 1/3.
func Parse(text string) (Shard, error) {
	if text == "" {
		return Shard{}, nil
	}
	part, of, found := strings.Cut(text, "/")
	number, fromZero := strings.CutPrefix(part, "index-")
	i, err1 := strconv.Atoi(number)
	n, err2 := strconv.Atoi(of)
	if fromZero {
		i++
	}
	if !found || err1 != nil || err2 != nil || i < 1 || i > n || n > 100 {
		return Shard{}, fmt.Errorf("--shard %q: give I/N with 1 ≤ I ≤ N ≤ 100, such as 1/3, or index-K/N with K from 0, such as index-0/3", text)
	}
	return Shard{i, n}, nil
}

// String is the form that Parse reads.
func (s Shard) String() string {
	if s.Of == 0 {
		return ""
	}
	return fmt.Sprintf("%d/%d", s.Part, s.Of)
}

// Has reports whether the shard has the i-th of a list, counted from 0; the shards take turns.
func (s Shard) Has(i int) bool { return s.Of <= 1 || i%s.Of == s.Part-1 }
