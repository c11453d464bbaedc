// Package flags is the one rule for the values of all flags of all commands. Empty values, zeros without a meaning, NaN, infinities,
// negative numbers and repeated flags are errors. A command declares the special values that mean something (Allow).
package flags

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Special is a kind of value that the rule refuses, unless Allow declares that it means something.
type Special string

// The special values of flags.
const (
	Empty    Special = "empty"
	Zero     Special = "zero"
	Negative Special = "negative"
	Repeated Special = "repeated" // a flag of one value that may be given again; the last one counts
)

const (
	allowed = "hitless/allowed" // annotation of a flag: its special values
	words   = "hitless/words"   // annotation of a flag: all its values
	aside   = "hitless/aside"   // annotation of a flag that Aside declares
	place   = "hitless/place"   // annotation of a flag that Place declares
)

// Allow declares special values of a flag that mean something.
func Allow(f *pflag.FlagSet, name string, values ...Special) {
	for _, v := range values {
		annotate(f, name, allowed, string(v))
	}
}

// Words declares all values that a flag of one word has.
func Words(f *pflag.FlagSet, name string, all ...string) { annotate(f, name, words, all...) }

// WordsOf returns the words that were declared for a flag; none if it takes others.
func WordsOf(f *pflag.Flag) []string { return f.Annotations[words] }

// Aside declares flags that change nothing of what a call measures, such as places of this machine, its part of the call, and how results are
// shown. The text of the call leaves them out.
func Aside(f *pflag.FlagSet, names ...string) {
	for _, name := range names {
		annotate(f, name, aside, "true")
	}
}

// IsAside reports whether Aside declares a flag.
func IsAside(f *pflag.Flag) bool { return len(f.Annotations[aside]) > 0 }

// Place declares flags whose value is a file of this machine.
func Place(f *pflag.FlagSet, names ...string) {
	for _, name := range names {
		annotate(f, name, place, "true")
	}
}

// IsPlace reports whether Place declares a flag.
func IsPlace(f *pflag.Flag) bool { return len(f.Annotations[place]) > 0 }

func annotate(f *pflag.FlagSet, name, key string, values ...string) {
	flag := f.Lookup(name)
	if flag == nil {
		panic("there is no flag --" + name)
	}
	if flag.Annotations == nil {
		flag.Annotations = map[string][]string{}
	}
	flag.Annotations[key] = append(flag.Annotations[key], values...)
}

// Strict applies the rule to the flags and arguments of a command and of all commands below it. It is called once, when all are added.
func Strict(c *cobra.Command) {
	strictFlags(c.Flags())
	strictFlags(c.PersistentFlags())
	if args := c.Args; args != nil {
		c.Args = func(cmd *cobra.Command, given []string) error {
			if i := slices.Index(given, ""); i >= 0 {
				return fmt.Errorf("argument %d is empty; give a value, such as of a variable that is set", i+1)
			}
			return countError(cmd, len(given), args(cmd, given))
		}
	}
	if !c.Runnable() && c.HasParent() && c.HasSubCommands() { // cobra prints the help for any word here, and exits with 0
		c.Args, c.RunE = cobra.NoArgs, func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
	for _, child := range c.Commands() {
		Strict(child)
	}
}

// countError replaces cobra's errors about the number of arguments, which do not say how a command is called. A validator's own error stays.
func countError(c *cobra.Command, given int, err error) error {
	if err == nil || !strings.HasPrefix(err.Error(), "accepts ") && !strings.HasPrefix(err.Error(), "requires ") &&
		(c.HasSubCommands() || !strings.HasPrefix(err.Error(), "unknown command ")) {
		return err
	}
	arguments := "arguments were"
	if given == 1 {
		arguments = "argument was"
	}
	return fmt.Errorf("%d %s given; call it as `%s`, or see `%s --help`", given, arguments, c.UseLine(), c.CommandPath())
}

func strictFlags(set *pflag.FlagSet) {
	set.VisitAll(func(f *pflag.Flag) {
		if _, is := f.Value.(ruled); is || f.Value.Type() == "bool" {
			return
		}
		v := &strictValue{Value: f.Value, flag: f}
		f.Value = v
		if f.DefValue == "0s" || f.DefValue == "[]" { // pflag's usage knows them as empty by the types that are hidden now
			f.DefValue = ""
		}
		if list, is := v.Value.(pflag.SliceValue); is {
			f.Value = &strictList{v, list}
		}
	})
}

// ruled is a value that follows the rule.
type ruled interface{ follows() }

// strictValue is the value of a flag, which refuses what the rule refuses.
type strictValue struct {
	pflag.Value
	flag  *pflag.Flag
	given bool
}

func (*strictValue) follows() {}

// Set checks and sets the value.
func (v *strictValue) Set(text string) error {
	_, list := v.Value.(pflag.SliceValue)
	if v.given && !list && !allows(v.flag, Repeated) {
		return errors.New("it is given twice; give it once")
	}
	text = spelled(v.flag, text)
	for _, part := range v.parts(text) {
		if err := check(v.flag, v.Type(), strings.TrimSpace(part)); err != nil {
			return err
		}
	}
	if err := v.Value.Set(text); err != nil {
		return err
	}
	v.given = true
	return nil
}

// spelled is a text as the declared words of a flag write it: they are taken in upper and lower case.
func spelled(f *pflag.Flag, text string) string {
	for _, word := range WordsOf(f) {
		if strings.EqualFold(word, text) {
			return word
		}
	}
	return text
}

// parts are the values in a text: several for a list with commas.
func (v *strictValue) parts(text string) []string {
	if v.Type() == "stringSlice" || v.Type() == "intSlice" {
		return strings.Split(text, ",")
	}
	return []string{text}
}

// strictList is a strictValue that holds a list.
type strictList struct {
	*strictValue
	list pflag.SliceValue
}

// Append checks and appends a value.
func (l *strictList) Append(text string) error {
	if err := check(l.flag, l.Type(), text); err != nil {
		return err
	}
	return l.list.Append(text)
}

// Replace checks the values and replaces the list by them.
func (l *strictList) Replace(all []string) error {
	if len(all) == 0 && !allows(l.flag, Empty) {
		return errEmpty
	}
	for _, text := range all {
		if err := check(l.flag, l.Type(), text); err != nil {
			return err
		}
	}
	return l.list.Replace(all)
}

// GetSlice returns the values.
func (l *strictList) GetSlice() []string { return l.list.GetSlice() }

var errEmpty = errors.New("it is empty; give a value, or leave it out")

func allows(f *pflag.Flag, s Special) bool { return slices.Contains(f.Annotations[allowed], string(s)) }

// check is the rule for one value of a flag.
func check(f *pflag.Flag, kind, text string) error {
	if text == "" {
		if allows(f, Empty) {
			return nil
		}
		return errEmpty
	}
	if all := WordsOf(f); len(all) > 0 && !slices.Contains(all, text) {
		return fmt.Errorf("give one of %s", strings.Join(all, ", "))
	}
	number, err := 0.0, error(nil)
	switch kind {
	case "int", "int64", "intSlice", "uint", "float64":
		number, err = strconv.ParseFloat(text, 64)
	case "duration":
		var d time.Duration
		d, err = time.ParseDuration(text)
		number = float64(d)
	default:
		return nil
	}
	switch {
	case err != nil || math.IsNaN(number) || math.IsInf(number, 0):
		return fmt.Errorf("it is not %s", nounOf(kind))
	case number < 0 && !allows(f, Negative):
		return fmt.Errorf("it is negative; give %s above 0", nounOf(kind))
	case number == 0 && !allows(f, Zero):
		return fmt.Errorf("0 means nothing here; give %s above 0, or leave it out", nounOf(kind))
	}
	return nil
}

func nounOf(kind string) string {
	switch kind {
	case "duration":
		return "a duration such as 30s"
	case "float64":
		return "a number"
	}
	return "a whole number"
}
