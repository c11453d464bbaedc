package vm

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// ask writes a request as the guest does, lets the host answer and returns what the guest reads.
func ask(t *testing.T, request string, handle func([]byte) ([]byte, error)) (answer string, failed bool, err error) {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "files"))
	if err != nil {
		t.Fatal(err)
	}
	d := &deviceFile{f, filesOffset + MaxCall}
	defer d.Close()
	if err := d.clear(); err != nil {
		t.Fatal(err)
	}
	if _, err := d.WriteAt([]byte(request), filesOffset); err != nil {
		t.Fatal(err)
	}
	if _, err := d.WriteAt(binary.LittleEndian.AppendUint64(nil, uint64(len(request))), 0); err != nil {
		t.Fatal(err)
	}
	if err := d.answer(handle); err != nil {
		return "", false, err
	}
	head := make([]byte, 16)
	if _, err := d.ReadAt(head, 0); err != nil {
		t.Fatal(err)
	}
	text := make([]byte, binary.LittleEndian.Uint64(head))
	if _, err := d.ReadAt(text, filesOffset); err != nil {
		t.Fatal(err)
	}
	return string(text), binary.LittleEndian.Uint64(head[8:]) != 0, nil
}

func TestAGuestsCallIsAnswered(t *testing.T) {
	upper := func(r []byte) ([]byte, error) { return []byte(strings.ToUpper(string(r)) + "!"), nil }
	if got, failed, err := ask(t, "compile", upper); err != nil || failed || got != "COMPILE!" {
		t.Errorf("%q, failed %v, %v", got, failed, err)
	}
	if got, failed, err := ask(t, "compile", func([]byte) ([]byte, error) { return nil, errors.New("no compiler") }); err != nil || !failed || got != "no compiler" {
		t.Errorf("a failure: %q, failed %v, %v", got, failed, err)
	}
	if got, failed, err := ask(t, "compile", func([]byte) ([]byte, error) { return nil, nil }); err != nil || failed || got != "" {
		t.Errorf("an empty answer: %q, failed %v, %v", got, failed, err)
	}
	if _, failed, err := ask(t, "compile", func([]byte) ([]byte, error) { return make([]byte, MaxCall+1), nil }); err != nil || !failed {
		t.Errorf("an answer that is too large: failed %v, %v", failed, err)
	}
	if _, _, err := ask(t, "", upper); err == nil {
		t.Error("a pause without a request was answered")
	}
}
