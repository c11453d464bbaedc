package main

import (
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// docPages lists README.md, CONTRIBUTING.md and all pages below docs.
func docPages(t *testing.T) []string {
	t.Helper()
	pages := []string{readme, "../../CONTRIBUTING.md"}
	err := filepath.WalkDir("../../docs", func(path string, d fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".md") {
			pages = append(pages, path)
		}
		return err
	})
	if err != nil || len(pages) < 20 {
		t.Fatalf("%d pages: %v", len(pages), err)
	}
	return pages
}

var (
	codeBlock = regexp.MustCompile("(?ms)^```.*?^```$|^    [^\n]*$")
	codeSpan  = regexp.MustCompile("`[^`\n]*`")
	linked    = regexp.MustCompile(`\]\(([^)\s]+)\)|(?:src|srcset)="([^"]+)"`)
	heading   = regexp.MustCompile(`(?m)^#{1,6} +(.*)$`)
	anchorTag = regexp.MustCompile(`<a id="([^"]+)"`)
)

// links returns the targets of a page's links, without those to other sites.
func links(text string) (targets []string) {
	text = codeBlock.ReplaceAllString(text, "")
	for _, m := range linked.FindAllStringSubmatch(text, -1) {
		target := m[1] + m[2]
		if u, err := url.Parse(target); err != nil || u.Scheme == "" {
			targets = append(targets, target)
		}
	}
	return targets
}

// anchors returns the fragments of a page's headings, as GitHub makes them.
func anchors(text string) map[string]bool {
	all := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(codeBlock.ReplaceAllString(text, ""), -1) {
		name := strings.Map(func(r rune) rune {
			switch {
			case r == ' ' || r == '-':
				return '-'
			case r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r > 127 && r != '…' && r != '·' && r != '–':
				return r
			}
			return -1
		}, strings.ToLower(strings.TrimSpace(m[1])))
		all[name] = true
	}
	for _, m := range anchorTag.FindAllStringSubmatch(text, -1) {
		all[m[1]] = true
	}
	return all
}

// linksTo returns the files that a page links to, and reports links that lead nowhere.
func linksTo(t *testing.T, page string) (files []string) {
	for _, link := range links(read(t, page)) {
		name, fragment, _ := strings.Cut(link, "#")
		file := filepath.Join(filepath.Dir(page), name)
		if name == "" {
			file = page
		}
		if _, err := os.Stat(file); err != nil {
			t.Errorf("%s links to %s, which does not exist", page, link)
			continue
		}
		if fragment != "" && !anchors(read(t, file))[fragment] {
			t.Errorf("%s links to %s, and %s has no such heading", page, link, file)
		}
		files = append(files, file)
	}
	return files
}

// All links lead somewhere, and every page is within two clicks of README.md.
func TestDocsLinks(t *testing.T) {
	graph := map[string][]string{}
	for _, page := range docPages(t) {
		graph[page] = linksTo(t, page)
	}
	near := map[string]bool{readme: true}
	for range 2 {
		for page := range maps.Clone(near) {
			for _, next := range graph[page] {
				near[next] = true
			}
		}
	}
	for page := range graph {
		if !near[page] {
			t.Errorf("%s is more than two clicks from README.md", page)
		}
	}
}

// docs/README.md lists every page once.
func TestDocsIndexListsEveryPageOnce(t *testing.T) {
	const index = "../../docs/README.md"
	listed := map[string]int{}
	for line := range strings.Lines(read(t, index)) {
		if strings.HasPrefix(line, "- ") {
			for _, link := range links(line) {
				listed[filepath.Join(filepath.Dir(index), link)]++
			}
		}
	}
	for _, page := range docPages(t) {
		if n := listed[page]; page != index && page != readme && n != 1 {
			t.Errorf("docs/README.md lists %s %d times, want once", page, n)
		}
	}
}

// No sentence of the documentation has more than 30 words.
func TestDocsSentencesAreShort(t *testing.T) {
	const most = 30
	for _, page := range docPages(t) {
		for _, sentence := range sentences(read(t, page)) {
			if words := strings.Fields(sentence); len(words) > most {
				t.Errorf("%s: %d words, want at most %d: %s", page, len(words), most, sentence)
			}
		}
	}
	if got := sentences("One two.\n\n- three\n- four five\n\n| a | b |\n\nSix\nseven. Eight `x. y` v1.2.3!"); len(got) != 5 {
		t.Errorf("%d sentences: %q", len(got), got)
	}
}

var (
	comment     = regexp.MustCompile(`(?s)<!--.*?-->`)
	sentenceEnd = regexp.MustCompile(`[.!?]["*)_]*(\s|$)`)
)

// sentences splits the prose of a page: paragraphs and items of lists, without tables and code.
func sentences(text string) (all []string) {
	text = comment.ReplaceAllString(codeSpan.ReplaceAllString(codeBlock.ReplaceAllString(text, ""), "code"), "")
	var paragraph []string
	flush := func() {
		joined := strings.Join(paragraph, " ")
		paragraph = nil
		for _, s := range sentenceEnd.Split(joined, -1) {
			if s = strings.TrimSpace(s); s != "" {
				all = append(all, s)
			}
		}
	}
	item := regexp.MustCompile(`^(- |\d+\. )`)
	for _, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(strings.TrimPrefix(line, "> "))
		switch {
		case line == "" || strings.HasPrefix(line, "#") || strings.HasPrefix(line, "|") || strings.HasPrefix(line, "<"):
			flush()
			continue
		case item.MatchString(line):
			flush()
			line = item.ReplaceAllString(line, "")
		}
		paragraph = append(paragraph, line)
	}
	flush()
	return all
}

// The pages use the terms of the glossary.
func TestDocsAvoidReplacedTerms(t *testing.T) {
	replaced := regexp.MustCompile(`(?i)\b(stranger'?s?|nobody|of its own accord|witness|scribe|deeds|lets? go of|told of above)\b`)
	for _, page := range docPages(t) {
		if filepath.Base(page) == "glossary.md" {
			continue
		}
		text := codeSpan.ReplaceAllString(codeBlock.ReplaceAllString(read(t, page), ""), "")
		found := map[string]bool{}
		for _, m := range replaced.FindAllString(text, -1) {
			found[strings.ToLower(m)] = true
		}
		if len(found) > 0 {
			t.Errorf("%s uses %q; docs/glossary.md has the terms", page, slices.Sorted(maps.Keys(found)))
		}
	}
}
