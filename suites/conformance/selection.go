package conformance

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/onsi/ginkgo/v2/types"

	"github.com/hitless/hitless/internal/shard"
	"github.com/hitless/hitless/record"
)

// description and container are the texts of the suite and of the container of its specs in Ginkgo; a focus matches them too.
const (
	description = "conformance"
	container   = "a Service proxy"
)

// Selection chooses specs. The zero value chooses all.
type Selection struct {
	Labels string   // a label filter of Ginkgo; empty for all
	Focus  []string // regular expressions; a spec needs one of them in its text
	Skip   []string // likewise, and no spec has one of them
	Shard  shard.Shard
}

// FocusOf is the expression that selects exactly the specs with these names.
func FocusOf(names ...string) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = regexp.QuoteMeta(name)
	}
	return "^" + description + " " + container + " (" + strings.Join(quoted, "|") + "): "
}

// specsOf returns the specs of the shard: specs with the same run are in the same one. The runs of all specs take turns, so that label
// filters do not move a run to another shard.
func specsOf(s shard.Shard, all []Spec) (part []Spec) {
	order := runs(all)
	for _, spec := range all {
		if s.Has(slices.Index(order, spec.Run)) {
			part = append(part, spec)
		}
	}
	return part
}

// filter returns the function that tells whether the labels and texts of a spec are selected.
func (s Selection) filter() (func(Spec) bool, error) {
	labels, err := s.labelFilter()
	if err != nil {
		return nil, err
	}
	focus, err := patterns("--focus", s.Focus)
	if err != nil {
		return nil, err
	}
	skip, err := patterns("--skip", s.Skip)
	if err != nil {
		return nil, err
	}
	return func(spec Spec) bool {
		matches := func(p *regexp.Regexp) bool { return p.MatchString(spec.fullText()) }
		return labels(spec.Labels()) && (len(focus) == 0 || slices.ContainsFunc(focus, matches)) && !slices.ContainsFunc(skip, matches)
	}, nil
}

func patterns(flag string, texts []string) (all []*regexp.Regexp, err error) {
	for _, text := range texts {
		p, err := regexp.Compile(text)
		if err != nil {
			return nil, fmt.Errorf("%s %q: %w", flag, text, err)
		}
		all = append(all, p)
	}
	return all, nil
}

// text is the selection as flags.
func (s Selection) text() string {
	var words []string
	if s.Labels != "" {
		words = append(words, "--label-filter", s.Labels)
	}
	for _, p := range s.Focus {
		words = append(words, "--focus", p)
	}
	for _, p := range s.Skip {
		words = append(words, "--skip", p)
	}
	return record.JoinWords(words)
}

// labelFilter parses the label filter, and refuses labels that no spec has.
func (s Selection) labelFilter() (types.LabelFilter, error) {
	filter, err := types.ParseLabelFilter(s.Labels)
	if err != nil {
		return nil, fmt.Errorf("--label-filter %q: %s; a filter is such as 'core && !udp'", s.Labels, plain(err))
	}
	known := labels()
	for _, word := range filterWords(s.Labels) {
		if pattern, is := strings.CutPrefix(word, "/"); is {
			p, err := regexp.Compile(pattern)
			if err == nil && slices.ContainsFunc(known, p.MatchString) {
				continue
			}
		} else if slices.ContainsFunc(known, func(l string) bool { return strings.EqualFold(l, word) }) {
			continue
		}
		return nil, fmt.Errorf("--label-filter %q: no spec has the label %q; the labels are %s", s.Labels, strings.TrimPrefix(word, "/"), sentence(known))
	}
	return filter, nil
}

// markup are the colours in the messages of Ginkgo.
var markup = regexp.MustCompile(`\{\{[^}]*\}\}`)

// plain is the message of an error of Ginkgo without its colours and advice, on one line.
func plain(err error) string {
	message := err.Error()
	var e types.GinkgoError
	if errors.As(err, &e) {
		message = e.Message
	}
	return strings.TrimRight(strings.Join(strings.Fields(markup.ReplaceAllString(message, "")), " "), ".")
}

// filterWords are the labels in a label filter, and its regular expressions with a slash before them.
func filterWords(filter string) (words []string) {
	rest := filter
	for rest != "" {
		if after, is := strings.CutPrefix(rest, "/"); is {
			pattern, more, _ := strings.Cut(after, "/")
			words, rest = append(words, "/"+pattern), more
			continue
		}
		end := strings.IndexAny(rest, "&|!(),/")
		if end < 0 {
			end = len(rest)
		}
		if word := strings.TrimSpace(rest[:end]); word != "" {
			words = append(words, word)
		}
		if rest = rest[end:]; rest != "" && rest[0] != '/' {
			rest = rest[1:]
		}
	}
	return words
}

// checkFocus refuses expressions that match no spec at all: they are misspelled.
func (s Selection) checkFocus(all []Spec) error {
	for _, e := range []struct {
		flag  string
		texts []string
	}{{"--focus", s.Focus}, {"--skip", s.Skip}} {
		expressions, err := patterns(e.flag, e.texts)
		if err != nil {
			return err
		}
		for i, p := range expressions {
			if !slices.ContainsFunc(all, func(spec Spec) bool { return p.MatchString(spec.fullText()) }) {
				return fmt.Errorf("%s %q matches no spec; `hitless conformance --dry-run` lists all specs", e.flag, e.texts[i])
			}
		}
	}
	return nil
}

// fullText is the text of the spec with those of its suite and its container, which Ginkgo compares.
func (s Spec) fullText() string { return description + " " + container + " " + s.Text() }

// Select returns the selected specs of the shard, and how many all shards have. A filter that matches no spec is an error.
func (s Selection) Select(all []Spec) (part []Spec, whole int, err error) {
	matches, err := s.filter()
	if err != nil {
		return nil, 0, err
	}
	for _, spec := range all {
		if matches(spec) {
			whole++
		}
	}
	if err := s.checkFocus(all); err != nil {
		return nil, 0, err
	}
	if whole == 0 {
		return nil, 0, fmt.Errorf("no spec matches %s; `hitless conformance --dry-run` lists all specs", s.text())
	}
	for _, spec := range specsOf(s.Shard, all) {
		if matches(spec) {
			part = append(part, spec)
		}
	}
	return part, whole, nil
}
