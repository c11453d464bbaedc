//go:build browser

package compare

import (
	"path/filepath"
	"testing"

	"github.com/hitless/hitless/internal/testfiles"
)

// The same for the page of a comparison, with testdata/compare.js.
func TestTheComparisonInABrowser(t *testing.T) {
	dir := comparedFolder(t)
	testfiles.UseInBrowser(t, filepath.Join(dir, PageFile), "compare.js", 1280)
}
