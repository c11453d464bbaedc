package record

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Command is the text of a call of hitless, such as Run.Command, by its parts.
type Command struct {
	Words []string // all of them, as a shell reads them
	Args  []string // those before the flags and between them: the program, its command, what that is of
	Flags []Flag   // in order
}

// Flag is a flag of a Command.
type Flag struct{ Name, Value string } // no value where none follows

// ParseCommand reads a command of Words. An open quote is an error; what follows it is then the last word.
func ParseCommand(text string) (Command, error) {
	words, err := SplitWords(text)
	c := Command{Words: words}
	for i := 0; i < len(words); i++ {
		flag, is := strings.CutPrefix(words[i], "--")
		if !is {
			c.Args = append(c.Args, words[i])
			continue
		}
		name, value, joined := strings.Cut(flag, "=")
		if !joined && i+1 < len(words) && !strings.HasPrefix(words[i+1], "--") {
			i++
			value = words[i]
		}
		c.Flags = append(c.Flags, Flag{name, value})
	}
	return c, err
}

// Is reports whether the command is of hitless and its next word is a verb, such as run.
func (c Command) Is(verb string) bool {
	return len(c.Words) > 1 && c.Words[0] == "hitless" && c.Words[1] == verb
}

// Has reports whether the command has one of the flags.
func (c Command) Has(names ...string) bool {
	return slices.ContainsFunc(c.Flags, func(f Flag) bool { return slices.Contains(names, f.Name) })
}

// Values are the values of a flag, in order.
func (c Command) Values(name string) (values []string) {
	for _, f := range c.Flags {
		if f.Name == name {
			values = append(values, f.Value)
		}
	}
	return values
}

// Set are the parameters that the command sets, KEY=VALUE.
func (c Command) Set() []string { return c.Values("set") }

// Word is a text as one word of a shell.
func Word(text string) string {
	if plainWord.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// JoinWords is a command of words, which SplitWords splits again.
func JoinWords(words []string) string {
	var quoted []string
	for _, w := range words {
		quoted = append(quoted, Word(w))
	}
	return strings.Join(quoted, " ")
}

// SplitWords splits a command of Words into its words. An open quote is an error, with the words until the end.
func SplitWords(text string) (words []string, err error) {
	word, open, begun := "", false, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\'':
			open, begun = !open, true
		case open:
			word += text[i : i+1]
		case c == '\\' && i+1 < len(text):
			i++
			word, begun = word+text[i:i+1], true
		case c == ' ':
			if begun {
				words = append(words, word)
			}
			word, begun = "", false
		default:
			word, begun = word+text[i:i+1], true
		}
	}
	if begun {
		words = append(words, word)
	}
	if open {
		return words, fmt.Errorf("the command %q has a quote that does not end", text)
	}
	return words, nil
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9/._@:+,=-]+$`)
