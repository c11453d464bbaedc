package main

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// releaseOptions describe a release. In in are the folders OS_ARCH with the program of each platform and maybe guestProgram, and share, whose files go into each
// archive. out gets the files of the release and nothing else.
type releaseOptions struct{ version, in, out string }

// guestProgram is the program of a lab's guests, beside that of another platform.
const guestProgram = "hitless-linux-amd64"

// checksums is the file with the SHA-256 of all others, in the format of sha256sum.
const checksums = "SHA256SUMS"

var versionForm = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+[0-9A-Za-z.+-]*$`)

// release writes an archive and an SBOM for each platform, images for Linux, and the checksums. It prints their names.
func release(o releaseOptions, stdout io.Writer) error {
	if !versionForm.MatchString(o.version) {
		return fmt.Errorf("%q is no version; give one such as v1.2.3", o.version)
	}
	platforms, err := filepath.Glob(filepath.Join(o.in, "*_*"))
	if err != nil || len(platforms) == 0 {
		return fmt.Errorf("%s has no program of a platform; `make release` builds them", o.in)
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return fmt.Errorf("making the directory for the release: %w", err)
	}
	shared, err := readTree(filepath.Join(o.in, "share"))
	if err != nil {
		return err
	}
	var names []string
	for _, dir := range platforms {
		written, err := o.platform(dir, shared)
		if err != nil {
			return err
		}
		names = append(names, written...)
	}
	slices.Sort(names)
	if err := writeFile(filepath.Join(o.out, checksums), func(w io.Writer) error { return writeChecksums(w, o.out, names) }); err != nil {
		return err
	}
	_, err = fmt.Fprintln(stdout, strings.Join(append(names, checksums), "\n"))
	return err
}

// member is a file of an archive.
type member struct {
	name string
	mode fs.FileMode
	data []byte
}

// platform writes the files of one platform and returns their names.
func (o releaseOptions) platform(dir string, shared []member) (names []string, err error) {
	files, err := readTree(dir)
	if err != nil {
		return nil, err
	}
	programs := slices.Clone(files)
	for i := range files {
		files[i].mode = 0o755
	}
	programs = slices.DeleteFunc(programs, func(m member) bool { return m.name == guestProgram })
	if len(programs) != 1 {
		return nil, fmt.Errorf("%s has %d programs; want one, and maybe %s beside it", dir, len(programs), guestProgram)
	}
	program := filepath.Join(dir, programs[0].name)
	p, err := readBuilt(program)
	if err != nil {
		return nil, err
	}
	if got := p.os + "_" + p.arch; got != filepath.Base(dir) {
		return nil, fmt.Errorf("%s has a program for %s", dir, got)
	}
	p.version = o.version
	base := fmt.Sprintf("hitless_%s_%s_%s", o.version, p.os, p.arch)
	all := slices.Concat(files, shared)
	slices.SortFunc(all, func(a, b member) int { return strings.Compare(a.name, b.name) })
	for i := range all {
		all[i].name = path.Join(base, all[i].name)
	}
	archive, pack := base+".tar.gz", writeTarball
	if p.os == "windows" {
		archive, pack = base+".zip", writeZip
	}
	parts := map[string]func(io.Writer) error{
		archive:            func(w io.Writer) error { return pack(w, all) },
		base + ".cdx.json": func(w io.Writer) error { return writeProgramSBOM(w, p) },
	}
	if p.os == "linux" {
		if err := o.image(base, program, parts); err != nil {
			return nil, err
		}
	}
	for name, fill := range parts {
		if err := writeFile(filepath.Join(o.out, name), fill); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, nil
}

// image adds the image of a program and its SBOM.
func (o releaseOptions) image(base, file string, parts map[string]func(io.Writer) error) error {
	p, err := readProgram(file)
	if err != nil {
		return err
	}
	p.version = o.version
	img, err := newImage(p)
	if err != nil {
		return err
	}
	digest, err := img.Digest()
	if err != nil {
		return err
	}
	tag, err := parseTag("hitless:" + strings.ReplaceAll(o.version, "+", "-"))
	if err != nil {
		return err
	}
	parts[base+".oci.tar"] = func(w io.Writer) error { return writeArchive(w, img, tag) }
	parts[base+".oci.cdx.json"] = func(w io.Writer) error { return writeSBOM(w, p, digest) }
	return nil
}

// readTree reads the files of a directory, with names that have slashes.
func readTree(dir string) (files []member, err error) {
	err = filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, file)
		files = append(files, member{filepath.ToSlash(name), 0o644, data})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading the files of the release: %w", err)
	}
	return files, nil
}

func writeTarball(w io.Writer, files []member) error {
	z, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	t := newTar(z)
	for _, f := range files {
		t.file(f.name, int64(f.mode), f.data)
	}
	if err := t.close(); err != nil {
		return err
	}
	return z.Close()
}

func writeZip(w io.Writer, files []member) error {
	z := zip.NewWriter(w)
	for _, f := range files {
		h := &zip.FileHeader{Name: f.name, Method: zip.Deflate}
		h.SetMode(f.mode)
		part, err := z.CreateHeader(h)
		if err == nil {
			_, err = part.Write(f.data)
		}
		if err != nil {
			return err
		}
	}
	return z.Close()
}

func writeChecksums(w io.Writer, dir string, names []string) error {
	var text bytes.Buffer
	for _, name := range names {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		fmt.Fprintf(&text, "%x  %s\n", sha256.Sum256(data), name)
	}
	_, err := w.Write(text.Bytes())
	return err
}
