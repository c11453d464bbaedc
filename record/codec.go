package record

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// events.ndjson has one JSON object a line: atNs, kind, node, object, text and attrs, a map of strings. This file is the only
// place that converts between attrs and the bodies of events.
//
// The tag `attr:"key,options"` of a body's field names the attribute. Durations are integers in the unit that ends the key, Ms or
// Ns; lists are comma separated. Options: omitempty leaves a zero value out, required makes a missing attribute an error, and
// with=KEY leaves the attribute out together with another one.

// line is an event on disk.
type line struct {
	At     time.Duration     `json:"atNs"`
	Kind   Kind              `json:"kind"`
	Node   string            `json:"node,omitempty"`
	Object string            `json:"object,omitempty"`
	Text   string            `json:"text"`
	Attrs  map[string]string `json:"attrs,omitempty"`
}

// EventError is an event that could be read but not understood. The events after it are intact.
type EventError struct {
	At   time.Duration
	Kind Kind
	Err  error
}

// Error says which event it is, and why.
func (e *EventError) Error() string { return fmt.Sprintf("%s event at %v: %v", e.Kind, e.At, e.Err) }

// Unwrap returns the reason.
func (e *EventError) Unwrap() error { return e.Err }

// MarshalJSON writes the event as one line of events.ndjson, without its newline. An event without a body is an error.
func (e Event) MarshalJSON() ([]byte, error) {
	if e.Body == nil {
		return nil, &EventError{e.At, "", errors.New("it has no body, and so no kind")}
	}
	attrs, err := attrsOf(e.Body)
	if err != nil {
		return nil, &EventError{e.At, e.Kind(), err}
	}
	l := line{At: e.At, Kind: e.Kind(), Node: e.Node, Object: e.Object, Text: e.Text, Attrs: attrs}
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(l); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// UnmarshalJSON reads a line of events.ndjson.
func (e *Event) UnmarshalJSON(data []byte) (err error) {
	*e, err = decodeLine(data)
	return err
}

// decodeLine reads a line of events.ndjson. An EventError means that the line is intact JSON but has an unknown kind or an
// attribute that cannot be read; the other fields are set then.
func decodeLine(data []byte) (Event, error) {
	var l line
	if err := json.Unmarshal(data, &l); err != nil {
		return Event{}, err
	}
	e := Event{At: l.At, Node: l.Node, Object: l.Object, Text: l.Text}
	body, err := parseBody(l.Kind, l.Attrs)
	if err != nil {
		return e, &EventError{l.At, l.Kind, err}
	}
	e.Body = body
	return e, nil
}

// attribute is a field of a body.
type attribute struct {
	index               int
	key                 string
	omitempty, required bool
	with                string // key of the attribute that it goes with
}

// attributes are those of each kind's body, in the order of its fields.
var attributes = func() map[Kind][]attribute {
	all := map[Kind][]attribute{}
	for _, b := range bodies {
		t := reflect.TypeOf(b)
		list := []attribute{}
		for i := range t.NumField() {
			words := strings.Split(t.Field(i).Tag.Get("attr"), ",")
			a := attribute{index: i, key: words[0], omitempty: slices.Contains(words, "omitempty"), required: slices.Contains(words, "required")}
			for _, w := range words[1:] {
				a.with = strings.TrimPrefix(w, "with=")
				if a.with == w {
					a.with = ""
				}
			}
			list = append(list, a)
		}
		all[b.Kind()] = list
	}
	return all
}()

func attrsOf(b Body) (map[string]string, error) {
	v := reflect.ValueOf(b)
	list := attributes[b.Kind()]
	if len(list) == 0 {
		return nil, nil
	}
	attrs := make(map[string]string, len(list))
	for _, a := range list {
		field := v.Field(a.index)
		if a.omitempty && field.IsZero() || a.with != "" && attrs[a.with] == "" {
			continue
		}
		text, err := format(field, a.key)
		if err != nil {
			return nil, fmt.Errorf("attribute %s: %w", a.key, err)
		}
		attrs[a.key] = text
	}
	return attrs, nil
}

// parseBody returns the body of a kind from its attributes. The error names an unknown kind, or an attribute that is missing or
// cannot be read.
func parseBody(kind Kind, attrs map[string]string) (Body, error) {
	i := slices.IndexFunc(bodies, func(b Body) bool { return b.Kind() == kind })
	if i < 0 {
		return nil, fmt.Errorf("unknown kind %q", kind)
	}
	v := reflect.New(reflect.TypeOf(bodies[i])).Elem()
	for _, a := range attributes[kind] {
		text, has := attrs[a.key]
		if !has && a.required {
			return nil, fmt.Errorf("attribute %s is missing", a.key)
		}
		if text == "" && !a.required {
			continue
		}
		if err := parse(v.Field(a.index), a.key, text); err != nil {
			return nil, fmt.Errorf("attribute %s=%q: %w", a.key, text, err)
		}
	}
	body := v.Interface().(Body)
	if c, is := body.(interface{ check() error }); is {
		return body, c.check()
	}
	return body, nil
}

// unit is that of a duration with this key.
func unit(key string) time.Duration {
	if strings.HasSuffix(key, "Ms") {
		return time.Millisecond
	}
	return time.Nanosecond
}

func format(v reflect.Value, key string) (string, error) {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return "", nil
		}
		return format(v.Elem(), key)
	}
	switch x := v.Interface().(type) {
	case time.Duration:
		return strconv.FormatInt(int64(x/unit(key)), 10), nil
	case encoding.TextMarshaler:
		text, err := x.MarshalText()
		return string(text), err
	case []string:
		return strings.Join(x, ","), nil
	}
	switch v.Kind() {
	case reflect.String:
		return v.String(), nil
	case reflect.Bool:
		return strconv.FormatBool(v.Bool()), nil
	case reflect.Int:
		return strconv.FormatInt(v.Int(), 10), nil
	case reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return strconv.FormatUint(v.Uint(), 10), nil
	case reflect.Float64:
		return strconv.FormatFloat(v.Float(), 'g', -1, 64), nil
	}
	return "", fmt.Errorf("fields of type %s are not supported", v.Type())
}

func parse(v reflect.Value, key, text string) error {
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		return parse(v.Elem(), key, text)
	}
	if u, is := v.Addr().Interface().(encoding.TextUnmarshaler); is {
		return u.UnmarshalText([]byte(text))
	}
	switch v.Interface().(type) {
	case time.Duration:
		return parseDuration(v, unit(key), text)
	case []string:
		v.Set(reflect.ValueOf(strings.Split(text, ",")))
		return nil
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
		return nil
	case reflect.Bool:
		v.SetBool(text == "true")
		return nil
	case reflect.Int:
		n, err := strconv.ParseInt(text, 10, 64)
		v.SetInt(n)
		return err
	case reflect.Uint16, reflect.Uint32, reflect.Uint64:
		n, err := strconv.ParseUint(text, 10, v.Type().Bits())
		v.SetUint(n)
		return err
	case reflect.Float64:
		f, err := strconv.ParseFloat(text, 64)
		v.SetFloat(f)
		return err
	}
	return fmt.Errorf("fields of type %s are not supported", v.Type())
}

func parseDuration(v reflect.Value, unit time.Duration, text string) error {
	if unit == time.Nanosecond {
		n, err := strconv.ParseInt(text, 10, 64)
		v.SetInt(n)
		return err
	}
	f, err := strconv.ParseFloat(text, 64)
	v.SetInt(int64(f * float64(unit)))
	return err
}
