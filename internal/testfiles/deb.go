package testfiles

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
)

// Compressions write files whose names end with the key. That of xz has the checksum of Debian's kernels, which read no other.
var Compressions = map[string]func(io.Writer) (io.WriteCloser, error){
	".xz":  func(w io.Writer) (io.WriteCloser, error) { return xz.WriterConfig{CheckSum: xz.CRC32}.NewWriter(w) },
	".gz":  func(w io.Writer) (io.WriteCloser, error) { return gzip.NewWriter(w), nil },
	".zst": func(w io.Writer) (io.WriteCloser, error) { return zstd.NewWriter(w) },
}

// Compressed is a text as a file of one of Compressions; with the empty suffix the text itself.
func Compressed(t testing.TB, suffix, text string) string {
	t.Helper()
	with := Compressions[suffix]
	if with == nil {
		return text
	}
	var b bytes.Buffer
	w, err := with(&b)
	if err == nil {
		_, err = io.WriteString(w, text)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// Deb is a package of Debian with files by their paths. A content that begins with -> is that of a link. The suffix is one of Compressions.
func Deb(t testing.TB, suffix string, files map[string]string) string {
	t.Helper()
	var headers []tar.Header
	dirs := map[string]bool{".": true}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		headers = append(headers, dirHeaders(dirs, path.Dir(name))...)
		h := tar.Header{Name: "./" + name, Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(files[name]))}
		if target, is := strings.CutPrefix(files[name], "->"); is {
			h.Typeflag, h.Linkname, h.Size = tar.TypeSymlink, target, 0
		}
		headers = append(headers, h)
	}
	return DebOf(t, suffix, headers, func(name string) string { return files[strings.TrimPrefix(name, "./")] })
}

func dirHeaders(made map[string]bool, dir string) (headers []tar.Header) {
	if made[dir] {
		return nil
	}
	made[dir] = true
	return append(dirHeaders(made, path.Dir(dir)), tar.Header{Name: "./" + dir + "/", Typeflag: tar.TypeDir, Mode: 0o755})
}

// DebOf is a package with these entries; content gives that of the files among them.
func DebOf(t testing.TB, suffix string, headers []tar.Header, content func(name string) string) string {
	t.Helper()
	var files bytes.Buffer
	w := tar.NewWriter(&files)
	for _, h := range headers {
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := io.WriteString(w, content(h.Name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	deb := "!<arch>\n"
	for _, m := range [][2]string{{"debian-binary", "2.0\n"}, {"control.tar.gz", "not read"}, {"data.tar" + suffix, Compressed(t, suffix, files.String())}} {
		deb += fmt.Sprintf("%-16s%-12d%-6d%-6d%-8s%-10d`\n%s", m[0], 0, 0, 0, "100644", len(m[1]), m[1])
		if len(m[1])%2 == 1 {
			deb += "\n"
		}
	}
	return deb
}
