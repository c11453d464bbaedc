package record

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A command is split into the words of which it was made.
func TestWordsOfACommand(t *testing.T) {
	for _, words := range [][]string{{"hitless", "run", "rollout"}, {"a b", "it's", "", "x=y,z", "ä ö", "'", "--focus", "^a (b|c): "}} {
		if got, err := SplitWords(JoinWords(words)); err != nil || !slices.Equal(got, words) {
			t.Errorf("%q was split into %q, %v", words, got, err)
		}
	}
	if _, err := SplitWords("hitless 'run"); err == nil {
		t.Error("an open quote is no error")
	}
}

// The parts of a command are those that the program reads, whatever its values hold.
func TestPartsOfACommand(t *testing.T) {
	for text, want := range map[string]Command{
		"": {},
		"hitless run rollout --subject bundled --seed -3 --capture --set 'k=a --b it'\\''s' --set=x=y --loop": {
			Args:  []string{"hitless", "run", "rollout"},
			Flags: []Flag{{"subject", "bundled"}, {"seed", "-3"}, {"capture", ""}, {"set", "k=a --b it's"}, {"set", "x=y"}, {"loop", ""}}},
		"hitless replay 'a b.timeline' --kubeconfig FILE": {Args: []string{"hitless", "replay", "a b.timeline"}, Flags: []Flag{{"kubeconfig", "FILE"}}},
	} {
		got, err := ParseCommand(text)
		got.Words = nil
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", text, err, diff)
		}
	}
	got, err := ParseCommand("hitless run x --set 'k=a b")
	if err == nil || !slices.Equal(got.Set(), []string{"k=a b"}) || !got.Is("run") || got.Is("compare") || !got.Has("y", "set") || got.Has("y") {
		t.Errorf("an open quote gave %+v, %v", got, err)
	}
}

// The commands in committed results are made of Words, byte for byte: histories hold such texts, and their hashes must not change.
func TestCommittedCommandsAreMadeOfWords(t *testing.T) {
	texts := map[string]bool{}
	var collect func(value any)
	collect = func(value any) {
		switch v := value.(type) {
		case []any:
			for _, one := range v {
				collect(one)
			}
		case map[string]any:
			for key, one := range v {
				if text, is := one.(string); is && key == "command" && strings.HasPrefix(text, "hitless ") {
					texts[text] = true
				}
				collect(one)
			}
		}
	}
	err := filepath.WalkDir(filepath.Join("..", "docs", "results"), func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".json" {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var value any
		if err := json.Unmarshal(data, &value); err == nil { // some files hold a value on each line, without commands
			collect(value)
		}
		return nil
	})
	if err != nil || len(texts) < 50 {
		t.Fatalf("%d commands: %v", len(texts), err)
	}
	for text := range texts {
		c, err := ParseCommand(text)
		if err != nil || JoinWords(c.Words) != text || !c.Has("subject") {
			t.Errorf("%s is made of %q: %v", text, c, err)
		}
	}
}
