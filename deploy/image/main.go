// Command image packs a static Go program into an OCI image without Docker and writes the software bill of materials (SBOM) of
// that image. With -release it packs the programs of all platforms instead, see release. All files are functions of the programs and of the
// names: they contain no time, path or user of this machine.
package main

import (
	"bytes"
	"cmp"
	"debug/buildinfo"
	"debug/elf"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

func main() {
	pack, err := parse(os.Args[1:], os.Stderr)
	if err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return
		}
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(2)
	}
	if err := pack(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// parse returns what the arguments ask for. A flag that would be ignored is an error.
func parse(args []string, stderr io.Writer) (pack func(stdout io.Writer) error, err error) {
	var o options
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.program, "program", "bin/hitless", "the static program, a `FILE`; not with -release")
	flags.StringVar(&o.name, "name", "hitless:latest", "`NAME` of the image with a tag; the image's digest does not depend on it; not with -release")
	flags.StringVar(&o.out, "out", "", "`DIRECTORY` for the files (default out/image, with -release out/release)")
	var r releaseOptions
	flags.StringVar(&r.version, "release", "", "pack a release of this `VERSION` instead")
	flags.StringVar(&r.in, "in", "out/release/work", "`DIRECTORY` with the programs of a release and what goes with them; with -release only")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q; -h lists the flags", flags.Arg(0))
	}
	pack = func(stdout io.Writer) error { return write(o, stdout) }
	unused := []string{"in"}
	r.out, o.out = cmp.Or(o.out, "out/release"), cmp.Or(o.out, "out/image")
	if r.version != "" {
		pack, unused = func(stdout io.Writer) error { return release(r, stdout) }, []string{"program", "name"}
	}
	flags.Visit(func(f *flag.Flag) {
		if slices.Contains(unused, f.Name) {
			err = fmt.Errorf("-%s would have no effect: -program and -name are of an image, -in is of a release (-release)", f.Name)
		}
	})
	return pack, err
}

type options struct{ program, name, out string }

// The files that write creates.
const (
	archiveFile = "hitless.oci.tar"
	sbomFile    = "hitless.cdx.json"
)

// write creates the image and its SBOM, and prints their paths.
func write(o options, stdout io.Writer) error {
	p, err := readProgram(o.program)
	if err != nil {
		return err
	}
	tag, err := parseTag(o.name)
	if err != nil {
		return err
	}
	img, err := newImage(p)
	if err != nil {
		return err
	}
	digest, err := img.Digest()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return fmt.Errorf("making the directory for the image: %w; give another with --out", err)
	}
	archive, sbom := filepath.Join(o.out, archiveFile), filepath.Join(o.out, sbomFile)
	if err := writeFile(archive, func(w io.Writer) error { return writeArchive(w, img, tag) }); err != nil {
		return err
	}
	if err := writeFile(sbom, func(w io.Writer) error { return writeSBOM(w, p, digest) }); err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "image %s\ndigest %s\narchive %s\nSBOM %s\n", o.name, digest, archive, sbom)
	return err
}

// writeFile replaces a file in one step; internal/cache is in another module.
func writeFile(name string, fill func(io.Writer) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(name), ".image-")
	if err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	defer os.Remove(f.Name()) // fails after the rename
	err = fill(f)
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Chmod(f.Name(), 0o644)
	}
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return nil
}

// program is a program that Go has built.
type program struct {
	bytes    []byte
	digest   v1.Hash
	os, arch string // GOOS and GOARCH
	version  string // of a release; empty for another build
	info     *buildinfo.BuildInfo
}

// readProgram reads a static Linux program built by Go. The image has no interpreter and no libraries for another one.
func readProgram(file string) (*program, error) {
	p, err := readBuilt(file)
	if err != nil {
		return nil, err
	}
	if p.os != "linux" || p.arch == "" {
		return nil, fmt.Errorf("%s is a program for %s/%s; containers need one for linux: build it with GOOS=linux", file, p.os, p.arch)
	}
	f, err := elf.NewFile(bytes.NewReader(p.bytes))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}
	for _, part := range f.Progs {
		if part.Type == elf.PT_INTERP {
			return nil, fmt.Errorf("%s is linked dynamically and would not start in the image: build it with CGO_ENABLED=0", file)
		}
	}
	return p, nil
}

// readBuilt reads a program of any platform.
func readBuilt(file string) (*program, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading the program: %w; `make build` builds it", err)
	}
	p := &program{bytes: data}
	if p.digest, _, err = v1.SHA256(bytes.NewReader(data)); err != nil {
		return nil, err
	}
	if p.info, err = buildinfo.Read(bytes.NewReader(data)); err != nil {
		return nil, fmt.Errorf("reading the build information of %s: %w; give a program that Go has built", file, err)
	}
	for _, s := range p.info.Settings {
		switch s.Key {
		case "GOOS":
			p.os = s.Value
		case "GOARCH":
			p.arch = s.Value
		}
	}
	return p, nil
}
