package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hitless/hitless/internal/flags"
	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/lab/build"
	"github.com/hitless/hitless/lab/subject"
	"github.com/hitless/hitless/scenarios"
	"github.com/hitless/hitless/scenarios/museum"
	"github.com/hitless/hitless/scenarios/values"
)

// complete gives shells the words that commands and flags take: scenarios, bugs, subjects, keys of --set, and declared words.
func complete(root *cobra.Command) {
	first := map[string]func() []cobra.Completion{"run": scenarioWords, "compare": scenarioWords, "museum run": museumWords, "museum show": museumWords, "museum bisect": museumWords, "museum judge": museumWords, "scenarios": scenarioWords, "build": buildWords, "build guest": scenarioWords}
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		if words := first[strings.TrimPrefix(c.CommandPath(), root.Name()+" ")]; words != nil {
			c.ValidArgsFunction = func(c *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
				if len(args) > 0 && c.Args(c, append(args, "more")) != nil { // it takes one argument
					return nil, cobra.ShellCompDirectiveNoFileComp
				}
				return words(), cobra.ShellCompDirectiveNoFileComp
			}
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) { completeFlag(c, f) })
		for _, child := range c.Commands() {
			visit(child)
		}
	}
	visit(root)
}

// completeFlag gives shells the values of a flag, if they are known.
func completeFlag(c *cobra.Command, f *pflag.Flag) {
	words := flags.WordsOf(f)
	complete := func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return words, cobra.ShellCompDirectiveNoFileComp
	}
	switch {
	case f.Name == "subject":
		complete = subjectWords
	case f.Name == "set":
		complete = settingWords
	case len(words) == 0:
		return
	}
	_ = c.RegisterFlagCompletionFunc(f.Name, complete) // fails only for a flag that has a function already
}

func scenarioWords() (words []cobra.Completion) {
	for _, s := range scenarios.All() {
		words = append(words, cobra.CompletionWithDesc(s.Name, s.Summary))
	}
	return slices.CompactFunc(words, func(a, b cobra.Completion) bool { return nameOf(a) == nameOf(b) })
}

// nameOf is a word of a completion without its description.
func nameOf(c cobra.Completion) string {
	name, _, _ := strings.Cut(c, "\t")
	return name
}

func museumWords() (words []cobra.Completion) {
	for _, e := range museum.All() {
		words = append(words, cobra.CompletionWithDesc(e.ID, e.Title))
	}
	return words
}

func buildWords() []cobra.Completion {
	words := []cobra.Completion{"control-plane", guestTools}
	for _, r := range build.Versions() {
		words = append(words, r.Name+"@"+r.Newest)
	}
	return words
}

// subjectWords are the bundled proxier, the newest kube-proxy and those that are built here. Of exec:FILE the shell completes the file.
func subjectWords(c *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if strings.HasPrefix(typed, "exec:") {
		return nil, cobra.ShellCompDirectiveDefault
	}
	words := []cobra.Completion{"bundled", "exec:"}
	for _, s := range subject.DataPlanes() {
		words = append(words, s.String())
	}
	var versions []string
	for _, r := range build.Versions() {
		if r.Name == subject.KubeProxy {
			versions = append(versions, r.Newest)
		}
	}
	if _, built, err := run.Subjects(c.Context()); err == nil {
		for _, b := range built {
			versions = append(versions, b.Version)
		}
	}
	slices.Sort(versions)
	for _, version := range slices.Compact(versions) {
		for _, s := range subject.KubeProxies(version) {
			words = append(words, s.String())
		}
	}
	return words, cobra.ShellCompDirectiveNoFileComp
}

// settingWords are the keys of the scenario that the command line names, and the values of a key that takes one of some words.
func settingWords(c *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	name := c.Name()
	if len(args) > 0 {
		name = args[0]
	}
	all := scenarios.Common()
	for _, s := range scenarios.All() {
		if s.Name == name {
			all = append(all, s.AllParameters()...)
		}
	}
	key, _, hasKey := strings.Cut(typed, "=")
	var words []cobra.Completion
	for _, p := range all {
		switch {
		case !hasKey:
			words = append(words, cobra.CompletionWithDesc(p.Key+"=", p.Help))
		case p.Key == key:
			for _, word := range p.Words {
				words = append(words, key+"="+word)
			}
		}
	}
	slices.Sort(words)
	words = slices.CompactFunc(words, func(a, b cobra.Completion) bool { return nameOf(a) == nameOf(b) })
	if hasKey {
		return words, cobra.ShellCompDirectiveNoFileComp
	}
	return words, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// helpCommand prints the help of a command. Cobra's own exits with 0 for a command that does not exist.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND]", Short: "Print the help of a command", GroupID: preparing,
		RunE: func(c *cobra.Command, args []string) error {
			found, rest, err := c.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return fmt.Errorf("there is no command %q; `hitless --help` lists the commands", strings.Join(args, " "))
			}
			found.InitDefaultHelpFlag()
			return found.Help()
		},
		ValidArgsFunction: func(c *cobra.Command, args []string, _ string) (words []cobra.Completion, _ cobra.ShellCompDirective) {
			if found, rest, err := c.Root().Find(args); err == nil && len(rest) == 0 {
				for _, child := range found.Commands() {
					if child.IsAvailableCommand() {
						words = append(words, cobra.CompletionWithDesc(child.Name(), child.Short))
					}
				}
			}
			return words, cobra.ShellCompDirectiveNoFileComp
		},
	}
}

// suggestFlag adds the nearest flag to the error of an unknown one.
func suggestFlag(c *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) || unknown.GetSpecifiedShortnames() != "" {
		return err
	}
	var names []string
	c.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	if near := values.Nearest(unknown.GetSpecifiedName(), names); near != "" {
		return fmt.Errorf("%w; did you mean --%s?", err, near)
	}
	return fmt.Errorf("%w; `%s --help` lists the flags", err, c.CommandPath())
}

// unknownCommand is the error of cobra for a command that does not exist and has no similar one.
var unknownCommand = regexp.MustCompile(`^unknown command ".*" for "(hitless[a-z -]*)"$`)

// suggestCommands adds the next step to the error of an unknown command.
func suggestCommands(err error) error {
	if err == nil {
		return nil
	}
	if of := unknownCommand.FindStringSubmatch(err.Error()); of != nil {
		return fmt.Errorf("%w; `%s --help` lists the commands", err, of[1])
	}
	return err
}
