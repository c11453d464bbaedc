//go:build browser

package compare

import (
	"path/filepath"
	"testing"

	"github.com/hitless/hitless/internal/testfiles"
)

// The page of a comparison in a browser, driven by testdata/compare.js.
func TestTheComparisonInABrowser(t *testing.T) {
	dir := comparedFolder(t)
	testfiles.UseInBrowser(t, filepath.Join(dir, PageFile), "compare.js", 1280)
}

// axe finds nothing serious in the page of a comparison.
func TestTheBrowserFindsTheComparisonAccessible(t *testing.T) {
	testfiles.Accessible(t, filepath.Join(comparedFolder(t), PageFile))
}
