package main

import (
	"bytes"
	_ "crypto/sha256" // go-digest takes the algorithms that are linked
	"debug/buildinfo"
	"debug/elf"
	"fmt"
	"os"

	digest "github.com/opencontainers/go-digest"
)

// program is the file that the image is made of.
type program struct {
	bytes  []byte
	digest digest.Digest
	arch   string // GOARCH
	info   *buildinfo.BuildInfo
}

// readProgram reads a static Linux program that Go has built. One that needs an interpreter or libraries would not start in an
// image that has none.
func readProgram(file string) (*program, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading the program: %w; `make build` builds it", err)
	}
	p := &program{bytes: data, digest: digest.FromBytes(data)}
	if p.info, err = buildinfo.Read(bytes.NewReader(data)); err != nil {
		return nil, fmt.Errorf("reading what %s was built from: %w; give a program that Go has built", file, err)
	}
	settings := map[string]string{}
	for _, s := range p.info.Settings {
		settings[s.Key] = s.Value
	}
	if settings["GOOS"] != "linux" || settings["GOARCH"] == "" {
		return nil, fmt.Errorf("%s is a program for %s/%s; containers need one for linux: build it with GOOS=linux", file, settings["GOOS"], settings["GOARCH"])
	}
	p.arch = settings["GOARCH"]
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}
	for _, part := range f.Progs {
		if part.Type == elf.PT_INTERP {
			return nil, fmt.Errorf("%s is linked to libraries of this machine, which the image has not: build it with CGO_ENABLED=0", file)
		}
	}
	return p, nil
}
