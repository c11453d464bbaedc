package watch

import (
	"strings"
	"testing"
)

// The file has its fixed size with any error, and the error can be read again from its first letter on.
func TestLongErrorsFitIntoTheState(t *testing.T) {
	f, err := open(t.TempDir(), true)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for name, text := range map[string]string{
		"short":                    "the disk is full",
		"plain":                    strings.Repeat("a", 3*stateSize),
		"quotes":                   strings.Repeat("\"", stateSize),
		"letters of six bytes":     strings.Repeat("<", stateSize/2),
		"letters of three bytes":   strings.Repeat("€", stateSize),
		"lines of a program's log": strings.Repeat("\x1b[31mfailed\n", stateSize/10),
	} {
		if err := f.write(State{Phase: Failed, Target: "203.0.113.10:80", Error: text}); err != nil {
			t.Fatal(err)
		}
		if info, err := f.Stat(); err != nil || info.Size() != stateSize {
			t.Errorf("%s: the file has %d bytes, %v", name, info.Size(), err)
		}
		s, err := f.read()
		if err != nil || s.Phase != Failed || !strings.HasPrefix(text, s.Error) || len(s.Error) < min(len(text), stateSize/10) {
			t.Errorf("%s: %d of %d bytes are left, %v", name, len(s.Error), len(text), err)
		}
	}
}
