package main

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"strings"
	"testing"
)

// A flag that would have no effect is refused before anything is written.
func TestFlagsThatDoNotGoTogether(t *testing.T) {
	for args, refused := range map[string]bool{
		"":                                    false,
		"-program p -name n:1 -out o":         false,
		"-release v1.2.3 -in work -out o":     false,
		"-release v1.2.3 -program p":          true,
		"-release v1.2.3 -name hitless:later": true,
		"-in work":                            true,
		"-unknown":                            true,
		"word":                                true,
	} {
		if _, err := parse(strings.Fields(args), io.Discard); (err != nil) != refused {
			t.Errorf("%q: %v, refused must be %v", args, err, refused)
		}
	}
	var help bytes.Buffer
	if _, err := parse([]string{"-h"}, &help); !errors.Is(err, flag.ErrHelp) || !strings.Contains(help.String(), "-release") {
		t.Errorf("-h: %v, %q", err, help.String())
	}
}
