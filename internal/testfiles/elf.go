package testfiles

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// ELF is a file for x86-64 in the format of programs, which cannot be executed: with a loader, if it is not empty, and needed libraries.
// The content makes it differ from others.
func ELF(t testing.TB, content, loader string, needed ...string) string {
	t.Helper()
	type section struct {
		name, kind, link uint32
		data             []byte
		offset           uint64
	}
	names := "\x00.interp\x00.dynstr\x00.dynamic\x00.shstrtab\x00"
	texts, dynamic := "\x00", new(bytes.Buffer)
	write := func(b *bytes.Buffer, v any) {
		if err := binary.Write(b, binary.LittleEndian, v); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range needed {
		write(dynamic, [2]uint64{1, uint64(len(texts))}) // DT_NEEDED
		texts += name + "\x00"
	}
	write(dynamic, [2]uint64{})
	const header, programHeader, sectionHeader = 64, 56, 64
	sections := []section{{}, {1, 1, 0, []byte(loader + "\x00"), 0}, {9, 3, 0, []byte(texts), 0}, {17, 6, 2, dynamic.Bytes(), 0}, {26, 3, 0, []byte(names), 0}}
	var body bytes.Buffer
	body.WriteString(content)
	for i := range sections {
		sections[i].offset = uint64(header + programHeader + body.Len())
		body.Write(sections[i].data)
	}
	kind := uint32(0) // PT_NULL
	if loader == "" {
		sections[1].kind, sections[1].name = 0, 0
	} else {
		kind = 3 // PT_INTERP
	}
	var b bytes.Buffer
	b.WriteString("\x7fELF\x02\x01\x01" + string(make([]byte, 9)))
	write(&b, struct {
		Type, Machine                                        uint16
		Version                                              uint32
		Entry, Phoff, Shoff                                  uint64
		Flags                                                uint32
		Ehsize, Phentsize, Phnum, Shentsize, Shnum, Shstrndx uint16
	}{3, 62, 1, 0, header, uint64(header + programHeader + body.Len()), 0, header, programHeader, 1, sectionHeader, uint16(len(sections)), 4})
	write(&b, [2]uint32{kind, 4})
	write(&b, [6]uint64{sections[1].offset, 0, 0, uint64(len(sections[1].data)), uint64(len(sections[1].data)), 1})
	b.Write(body.Bytes())
	for _, s := range sections {
		write(&b, [2]uint32{s.name, s.kind})
		write(&b, [4]uint64{0, 0, s.offset, uint64(len(s.data))})
		write(&b, [2]uint32{s.link, 0})
		entry := uint64(0)
		if s.kind == 6 {
			entry = 16
		}
		write(&b, [2]uint64{1, entry})
	}
	return b.String()
}
