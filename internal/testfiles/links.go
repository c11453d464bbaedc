package testfiles

import (
	"html"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

var link = regexp.MustCompile(`(?:href|src)="([^"]*)"`)

// Links reports each link of a page that leads to no file, and returns the targets of the others, relative to the folder of the page. Links
// to other hosts and into the page itself are none.
func Links(t testing.TB, page string) (targets []string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range link.FindAllStringSubmatch(string(text), -1) {
		to, err := url.Parse(html.UnescapeString(found[1]))
		if err == nil && (to.Scheme != "" || to.Host != "" || to.Path == "") {
			continue
		}
		if err == nil {
			_, err = os.Stat(filepath.Join(filepath.Dir(page), filepath.FromSlash(to.Path)))
		}
		if err != nil {
			t.Errorf("%s has a broken link: %v", page, err)
			continue
		}
		targets = append(targets, to.Path)
	}
	return targets
}
