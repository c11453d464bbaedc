package scenarios

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hitless/hitless/scenarios/values"
)

// Parameter is one `--set` key.
type Parameter struct {
	Key     string
	Default string
	Help    string
	Words   []string // all its values, if it is one word
	check   func(value string) error
	needs   []Capability // of the site, where the key is given
	with    []Parameter  // keys that come with this one
}

// withDefault is the parameter with another default.
func (p Parameter) withDefault(value string) Parameter {
	p.Default = value
	return p
}

// withHelp is the parameter with another help text.
func (p Parameter) withHelp(text string) Parameter {
	p.Help = text
	return p
}

// In reports whether the scenario of these parameters has the key.
func (p Parameter) In(params Params) bool {
	_, has := params[p.Key]
	return has
}

// Text is the value as it was given.
func (p Parameter) Text(params Params) string { return params[p.Key] }

// TypedParameter is a parameter whose values have a type.
type TypedParameter[T any] struct {
	Parameter
	read values.Type[T]
}

// Of is the value among the parameters of a run, which Fill has checked. It is the zero value where the scenario does not
// have the key.
func (t TypedParameter[T]) Of(p Params) T {
	v, _ := t.read(p[t.Key])
	return v
}

// needing is the parameter as one that only sites with these capabilities have.
func (t TypedParameter[T]) needing(all ...Capability) TypedParameter[T] {
	t.needs = all
	return t
}

// newParameter makes a parameter of a type.
func newParameter[T any](key, value, help string, read values.Type[T]) TypedParameter[T] {
	return TypedParameter[T]{Parameter: Parameter{Key: key, Default: value, Help: help, check: read.Check}, read: read}
}

func newDuration(key, value, help string, low, high time.Duration) TypedParameter[time.Duration] {
	return newParameter(key, value, help, values.Duration(low, high))
}

func newNumber(key, value, help string, low, high int) TypedParameter[int] {
	return newParameter(key, value, help, values.Number(low, high))
}

func newWord(key, value, help string, words ...string) TypedParameter[string] {
	p := newParameter(key, value, help, values.Word(words...))
	p.Words = words
	return p
}

func newList(key, value, help string, words ...string) TypedParameter[[]string] {
	return newParameter(key, value, help, values.List(words...))
}

func newSwitch(key, value, help string) TypedParameter[bool] {
	p := newParameter(key, value, help, values.Switch)
	p.Words = []string{"on", "off"}
	return p
}

func newText(key, value, help string) TypedParameter[string] {
	return newParameter(key, value, help, values.Text)
}

// Params are the values of a run, complete with defaults, as the record stores them.
type Params map[string]string

// given is the text of a value, for messages.
func (p Params) given(parameter Parameter) string { return parameter.Key + "=" + p[parameter.Key] }

// Fill checks the given values against the scenario's parameters and adds the defaults. An unknown key is an error that
// names the nearest one, or all; a bad value is an error that says what is allowed.
func (s Scenario) Fill(given map[string]string) (Params, error) {
	params := Params{}
	for _, p := range s.AllParameters() {
		params[p.Key] = p.Default
	}
	for key, value := range given {
		if err := s.CheckValue(key, value); err != nil {
			return nil, err
		}
		params[key] = value
	}
	for _, check := range []func() error{params.checkPlaces, params.checkPolicyChanges, params.checkReuse, params.checkChurn, params.checkStale} {
		if err := check(); err != nil {
			return nil, err
		}
	}
	return params, s.checkBalancer(params)
}

// CheckValue checks one value against its parameter. It does not check whether the values of several parameters fit together; Fill does.
func (s Scenario) CheckValue(key, value string) error {
	all := s.AllParameters()
	i := slices.IndexFunc(all, func(p Parameter) bool { return p.Key == key })
	if i < 0 {
		return s.unknownKey(key)
	}
	if err := all[i].check(value); err != nil {
		return fmt.Errorf("--set %s=%s: %w", key, value, err)
	}
	if value == "" {
		return fmt.Errorf("--set %s=: the value is empty; give one, or leave the key out", key)
	}
	return nil
}

func (s Scenario) unknownKey(key string) error {
	var keys []string
	for _, p := range s.AllParameters() {
		keys = append(keys, p.Key)
	}
	slices.Sort(keys)
	help := "its keys are " + strings.Join(keys, " ")
	if near := values.Nearest(key, keys); near != "" {
		help = "did you mean " + near + "? `hitless scenarios` lists all keys"
	}
	return fmt.Errorf("scenario %s has no key %q; %s", s.Name, key, help)
}

// checkBalancer refuses lanes of UDP behind a load balancer that forwards TCP only.
func (s Scenario) checkBalancer(p Params) error {
	switch {
	case !p.terminated():
		return nil
	case p.Datagrams():
		return fmt.Errorf("--set %s with %s: HAProxy forwards TCP only; name no udp lane, or use passthrough", p.given(Lanes.Parameter), p.given(BalancerKind.Parameter))
	case s.setup(p).Datagrams:
		return errors.New("loadBalancer=haproxy with a lane of UDP in the timeline: HAProxy forwards TCP only; take the lane out, or use passthrough")
	}
	return nil
}
