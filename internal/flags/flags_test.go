package flags

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// command has a flag of each type.
func command() *cobra.Command {
	c := &cobra.Command{Use: "c", Args: cobra.ArbitraryArgs, Run: func(*cobra.Command, []string) {}}
	f := c.Flags()
	f.String("text", "", "")
	f.Int("number", 0, "")
	f.Duration("time", time.Second, "")
	f.StringSlice("list", nil, "")
	f.StringArray("many", nil, "")
	f.Bool("on", false, "")
	return c
}

// The rule refuses what means nothing, and accepts it where a command says that it means something.
func TestStrict(t *testing.T) {
	for args, want := range map[string]string{
		"--text=":                 "it is empty",
		"--text=a --text=b":       "given twice",
		"--number=0":              "0 means nothing",
		"--time=-1s":              "negative",
		"--list=a,,b":             "it is empty",
		"--many=":                 "it is empty",
		"--on=":                   "--on",
		"--number=1 --time=1h":    "",
		"--many=a --many=b --on":  "",
		"--list=a,b --list=c x y": "",
	} {
		c := command()
		Strict(c)
		if err := c.ParseFlags(strings.Fields(args)); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
	c := command()
	f := c.Flags()
	Allow(f, "text", Empty, Repeated)
	Allow(f, "number", Zero, Negative)
	Words(f, "list", "a", "b")
	Strict(c)
	if err := c.ParseFlags([]string{"--text=x", "--text=", "--number=0", "--list=a,b"}); err != nil {
		t.Error(err)
	}
	if err := c.ParseFlags([]string{"--list=c"}); err == nil || !strings.Contains(err.Error(), "one of a, b") {
		t.Errorf("another word: %v", err)
	}
	if err := c.Args(c, []string{"a", ""}); err == nil || !strings.Contains(err.Error(), "argument 2 is empty") {
		t.Errorf("an empty argument: %v", err)
	}
}

// A declared word is taken in upper and lower case, and has the declared spelling.
func TestTheCaseOfWords(t *testing.T) {
	c := command()
	Words(c.Flags(), "text", "loadBalancer", "nodePort")
	Strict(c)
	if err := c.ParseFlags([]string{"--text=nodeport"}); err != nil {
		t.Fatal(err)
	}
	if got, _ := c.Flags().GetString("text"); got != "nodePort" {
		t.Errorf("nodeport is %q", got)
	}
}

// A wrong number of arguments is told with the way to call the command; a validator's own error stays.
func TestNumbersOfArguments(t *testing.T) {
	own := errors.New("give one scenario")
	for name, tt := range map[string]struct {
		args  cobra.PositionalArgs
		given []string
		want  string
	}{
		"none of one":    {cobra.ExactArgs(1), nil, "0 arguments were given; call it as `judge DIR"},
		"two of one":     {cobra.ExactArgs(1), []string{"a", "b"}, "2 arguments were given; call it as `judge DIR"},
		"none of more":   {cobra.MinimumNArgs(1), nil, "0 arguments were given; call it as `judge DIR"},
		"one of none":    {cobra.NoArgs, []string{"a"}, "1 argument was given; call it as `judge DIR"},
		"two of one max": {cobra.MaximumNArgs(1), []string{"a", "b"}, "2 arguments were given; call it as `judge DIR"},
		"its own":        {func(*cobra.Command, []string) error { return own }, nil, own.Error()},
		"right":          {cobra.ExactArgs(1), []string{"a"}, ""},
	} {
		c := &cobra.Command{Use: "judge DIR", Args: tt.args, Run: func(*cobra.Command, []string) {}}
		Strict(c)
		err := c.Args(c, tt.given)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

// Help texts are the same with and without the rule.
func TestUsageStays(t *testing.T) {
	c, strict := command(), command()
	Strict(strict)
	if got, want := strict.Flags().FlagUsages(), c.Flags().FlagUsages(); got != want {
		t.Errorf("usage\n%s\nwant\n%s", got, want)
	}
}
