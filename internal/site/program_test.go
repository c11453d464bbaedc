package site

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hitless/hitless/internal/guest"
	"github.com/hitless/hitless/lab/vm"
)

// A program that was built again has another digest, also within one process.
func TestTheProgramOfARunIsItsFile(t *testing.T) {
	c := Call{Program: filepath.Join(t.TempDir(), "hitless")}
	if _, err := c.programSha256(t.Context()); err == nil {
		t.Error("a missing program has a digest")
	}
	for _, content := range [][]byte{[]byte("one"), bytes.Repeat([]byte("other"), 1000)} {
		if err := os.WriteFile(c.Program, content, 0o755); err != nil {
			t.Fatal(err)
		}
		want := sha256.Sum256(content)
		for range 2 {
			if got, err := c.programSha256(t.Context()); err != nil || got != hex.EncodeToString(want[:]) {
				t.Errorf("%s, %v, want %x", got, err, want)
			}
		}
	}
}

// A program that needs a loader is refused before anything starts, and the error says how to build it. A static one is accepted, and
// what is no program is not.
func TestALabRefusesAProgramThatNeedsALoader(t *testing.T) {
	dir := t.TempDir()
	dynamic, static, text := filepath.Join(dir, "dynamic"), filepath.Join(dir, "static"), filepath.Join(dir, "text")
	for file, content := range map[string][]byte{dynamic: elfOf(elf.PT_INTERP), static: elfOf(elf.PT_LOAD), text: []byte("#!/bin/sh\n")} {
		if err := os.WriteFile(file, content, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, program := range []string{dynamic, text, filepath.Join(dir, "missing")} {
		img := vm.NewImage()
		if err := addHitless(img, program, ""); !errors.As(err, new(UsageError)) || img.Has(guest.Program) {
			t.Errorf("%s is accepted: %v", program, err)
		}
	}
	if err := addHitless(vm.NewImage(), dynamic, ""); err == nil || !strings.Contains(err.Error(), "make build") || !strings.Contains(err.Error(), "CGO_ENABLED=0") {
		t.Errorf("the error does not say what to do: %v", err)
	}
	for _, sum := range []string{"", strings.Repeat("0", 64)} {
		img := vm.NewImage()
		if err := addHitless(img, static, sum); err != nil || !img.Has(guest.Program) {
			t.Errorf("a static program is refused: %v", err)
		}
	}
}

// elfOf is the head of a program for Linux with one segment.
func elfOf(kind elf.ProgType) []byte {
	var b bytes.Buffer
	head := elf.Header64{Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type: uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT), Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: 1, Shentsize: 64}
	_ = binary.Write(&b, binary.LittleEndian, head)
	_ = binary.Write(&b, binary.LittleEndian, elf.Prog64{Type: uint32(kind)})
	return b.Bytes()
}
