package timeline

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/hitless/hitless/scenarios/values"
)

// magic is the first line of every timeline.
const magic = "hitless timeline 1"

// Parse reads a timeline and checks it, see Check. Each error begins with file:line.
func Parse(file string, text []byte) (*Timeline, error) {
	p := &parser{file: file, t: New(), given: map[string]int{}}
	if !utf8.Valid(text) {
		return nil, p.errorf(1+bytes.Count(text[:firstInvalid(text)], []byte("\n")), "the line is not UTF-8 text")
	}
	for line := range strings.Lines(string(text)) {
		p.line++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if err := p.parseLine(line); err != nil {
			return nil, p.errorf(p.line, "%w", err)
		}
	}
	switch {
	case !p.begun:
		return nil, p.errorf(1, "the timeline is empty; its first line must be %q", magic)
	case !p.ended:
		return nil, p.errorf(p.line, "the timeline is cut off: its last line must be a step `end`, such as +5m0s end")
	}
	if line, err := p.t.Check(); err != nil {
		return nil, p.errorf(line, "%w", err)
	}
	return p.t, nil
}

func firstInvalid(text []byte) int {
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRune(text[i:])
		if r == utf8.RuneError && n <= 1 {
			return i
		}
		i += n
	}
	return len(text)
}

type parser struct {
	file         string
	t            *Timeline
	line         int
	begun, ended bool
	given        map[string]int // line numbers of header lines, which must be unique
}

func (p *parser) errorf(line int, format string, args ...any) error {
	return fmt.Errorf("%s:%d: %w", p.file, line, fmt.Errorf(format, args...))
}

func (p *parser) parseLine(line string) error {
	switch {
	case !p.begun:
		p.begun = true
		if line != magic {
			return fmt.Errorf("the file is not a timeline of this version: the first line must be %q", magic)
		}
		return nil
	case p.ended:
		return fmt.Errorf("the line is after `end`, which must be the last")
	case strings.HasPrefix(line, "+"):
		return p.parseStep(line[1:])
	case len(p.t.Steps) > 0:
		return fmt.Errorf("a step begins with its time, such as +5s; other lines must be before the first step")
	}
	word, rest, _ := strings.Cut(line, " ")
	return p.parseHead(word, strings.TrimSpace(rest))
}

// parseHead reads a line before the steps.
func (p *parser) parseHead(word, rest string) (err error) {
	switch word {
	case "nodes":
		p.t.Nodes, err = values.Number(1, 50)(rest)
	case "rate":
		p.t.Rate, err = values.Rate(rest)
	case "seed":
		if p.t.Seed, err = strconv.ParseInt(rest, 10, 64); err != nil {
			err = fmt.Errorf("%q is not a whole number", rest)
		}
	case "set":
		var s Setting
		s, err = p.parseSetting(rest)
		p.t.Set = append(p.t.Set, s)
		word += " " + s.Key
	case "lane":
		var s Step
		s, err = p.parseAction(laneStart + " " + rest)
		p.t.Lanes = append(p.t.Lanes, s)
		word += " " + s.Object
	case "given":
		var s Step
		if s, err = p.parseAction("object apply " + rest); err == nil {
			rest, err = s.Reference()
		}
		p.t.Given = append(p.t.Given, s)
		word = rest
	default:
		return fmt.Errorf("unknown word %q; lines before the steps begin with nodes, rate, seed, set, lane or given, and steps with +", word)
	}
	if err != nil {
		return err
	}
	if before := p.given[word]; before > 0 {
		return fmt.Errorf("%s is given twice, first in line %d", word, before)
	}
	p.given[word] = p.line
	return nil
}

func (p *parser) parseSetting(text string) (Setting, error) {
	key, value, found := strings.Cut(text, "=")
	if !found || key == "" || strings.ContainsFunc(text, isSpace) {
		return Setting{}, fmt.Errorf("set %s: give set KEY=VALUE, without spaces", text)
	}
	return Setting{Key: key, Value: value, Line: p.line}, nil
}

func (p *parser) parseStep(text string) error {
	at, rest, _ := strings.Cut(text, " ")
	after, err := time.ParseDuration(at)
	if err != nil || after < 0 || strings.HasPrefix(at, "+") || strings.HasPrefix(at, "-") {
		return fmt.Errorf("+%s is not a time since the beginning, such as +5s or +1m30s", at)
	}
	if n := len(p.t.Steps); n > 0 && after < p.t.Steps[n-1].At {
		return fmt.Errorf("+%s comes after +%s: steps must be sorted by time", after, p.t.Steps[n-1].At)
	}
	s, err := p.parseAction(strings.TrimSpace(rest))
	if err != nil {
		return err
	}
	if s.Verb == laneStart {
		return fmt.Errorf("a lane must run from the baseline on: write `lane %s` before the steps", s.Object)
	}
	s.At = after
	p.t.Steps = append(p.t.Steps, s)
	p.ended = s.Verb == End
	return nil
}

// parseAction reads a step without its time.
func (p *parser) parseAction(text string) (Step, error) {
	s := Step{Line: p.line}
	head, object := text, ""
	if i := strings.IndexByte(text, '{'); i >= 0 {
		head, object = text[:i], text[i:]
	}
	words := strings.FieldsFunc(head, isSpace)
	v, err := s.takeVerb(&words)
	if err != nil {
		return s, err
	}
	if v.text {
		all := strings.FieldsFunc(text, isSpace)
		return s.takeText(all[len(strings.Fields(s.Verb)):])
	}
	if !v.object.absent {
		if len(words) == 0 {
			return s, fmt.Errorf("%s: its object is missing", s.Verb)
		}
		s.Object, words = words[0], words[1:]
	}
	if s.Args, err = v.parseArgs(s.Verb, words); err != nil {
		return s, err
	}
	if v.json != (object != "") {
		if v.json {
			return s, fmt.Errorf("%s: an object as JSON ({...}) is missing", s.Verb)
		}
		return s, fmt.Errorf("%s takes no JSON", s.Verb)
	}
	if v.json {
		if s.JSON, err = compact(object); err == nil {
			err = s.checkJSON()
		}
		if err != nil {
			return s, fmt.Errorf("%s: %w", s.Verb, err)
		}
	}
	return s, nil
}

// takeText sets the object and the text of a step that ends with words.
func (s Step) takeText(words []string) (Step, error) {
	if len(words) < 2 {
		return s, fmt.Errorf("%s: give its object and a command, such as node run node-1 nft flush ruleset", s.Verb)
	}
	s.Object, s.Text = words[0], strings.Join(words[1:], " ")
	return s, nil
}

func isSpace(r rune) bool { return r == ' ' || r == '\t' }

// takeVerb sets the verb and removes it from the words.
func (s *Step) takeVerb(words *[]string) (verb, error) {
	for n := min(2, len(*words)); n > 0; n-- {
		s.Verb = strings.Join((*words)[:n], " ")
		if v, is := verbs[s.Verb]; is {
			*words = (*words)[n:]
			return v, nil
		}
	}
	if len(*words) == 0 {
		return verb{}, fmt.Errorf("the verb is missing; the verbs are %s", strings.Join(Verbs(), ", "))
	}
	return verb{}, fmt.Errorf("unknown verb %q; the verbs are %s", strings.Join((*words)[:min(2, len(*words))], " "), strings.Join(Verbs(), ", "))
}

// parseArgs reads the arguments in any order and returns them in the order of the verb's keys.
func (v verb) parseArgs(verb string, words []string) (args []Arg, err error) {
	given := map[string]string{}
	for _, w := range words {
		name, value, found := strings.Cut(w, "=")
		i := slices.IndexFunc(v.keys, func(k key) bool { return k.name == name })
		switch {
		case !found || i < 0:
			return nil, fmt.Errorf("%s has no argument %q; %s", verb, w, v.help())
		case given[name] != "":
			return nil, fmt.Errorf("%s: %s is given twice", verb, name)
		}
		if err := v.keys[i].check(value); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", verb, name, err)
		}
		given[name] = value
	}
	for _, k := range v.keys {
		if value, has := given[k.name]; has {
			args = append(args, Arg{k.name, value})
		} else if k.required {
			return nil, fmt.Errorf("%s: %s= is missing", verb, k.name)
		}
	}
	return args, nil
}

func (v verb) help() string {
	if len(v.keys) == 0 {
		return "it has no arguments"
	}
	var names []string
	for _, k := range v.keys {
		names = append(names, k.name+"=")
	}
	return "its arguments are " + strings.Join(names, ", ")
}

func compact(text string) (string, error) {
	var out bytes.Buffer
	if err := json.Compact(&out, []byte(text)); err != nil {
		return "", fmt.Errorf("the object is not JSON: %w", err)
	}
	return out.String(), nil
}
