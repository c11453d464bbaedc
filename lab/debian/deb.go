package debian

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"

	"github.com/hitless/hitless/internal/input"
)

// Decompressor returns how to read a file whose name ends with .xz, .gz or .zst; nil for another one.
func Decompressor(name string) func(io.Reader) (io.ReadCloser, error) {
	return decompressors[path.Ext(name)]
}

var decompressors = map[string]func(io.Reader) (io.ReadCloser, error){
	".xz": func(r io.Reader) (io.ReadCloser, error) {
		plain, err := xz.NewReader(bufio.NewReaderSize(r, 64<<10)) // it reads byte by byte
		return io.NopCloser(plain), err
	},
	".gz": func(r io.Reader) (io.ReadCloser, error) { return gzip.NewReader(r) },
	".zst": func(r io.Reader) (io.ReadCloser, error) {
		plain, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, err
		}
		return plain.IOReadCloser(), nil
	},
}

// maxUnpacked bounds the content of a package: a small file can hold any number of zeros.
const maxUnpacked = 4 << 30

// Walk calls visit with each entry of a package's files, in their order. The name in the header is clean and relative. A package that is
// damaged, or ends early, is an error; visit may have been called before.
func Walk(ctx context.Context, file string, visit func(h *tar.Header, content io.Reader) error) error {
	if err := walk(ctx, file, visit); err != nil {
		return fmt.Errorf("unpacking %s: %w", file, err)
	}
	return nil
}

func walk(ctx context.Context, file string, visit func(*tar.Header, io.Reader) error) error {
	f, err := input.Open(file, input.ProgramBytes)
	if err != nil {
		return err
	}
	defer f.Close()
	name, data, err := dataMember(untilDone{ctx, f})
	if err != nil {
		return err
	}
	content := io.NopCloser(data)
	if open := Decompressor(name); open != nil {
		if content, err = open(data); err != nil {
			return err
		}
	} else if name != "data.tar" {
		return fmt.Errorf("its files are in %s; hitless reads .xz, .gz and .zst", name)
	}
	defer content.Close()
	bounded := &io.LimitedReader{R: content, N: maxUnpacked}
	for files := tar.NewReader(bounded); ; {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			if h.Name = path.Clean(h.Name); path.IsAbs(h.Name) || h.Name == ".." || strings.HasPrefix(h.Name, "../") {
				return fmt.Errorf("it has a file %s, outside of its root", h.Name)
			}
			err = visit(h, files)
		}
		if err != nil {
			return err
		}
	}
	// The end of the stream has its checksum.
	if _, err := io.Copy(io.Discard, bounded); err != nil {
		return err
	}
	if bounded.N == 0 {
		return fmt.Errorf("it has more than %d GB", maxUnpacked>>30)
	}
	return nil
}

// dataMember finds the archive with a package's files in its ar(5) archive (deb(5)).
func dataMember(r io.Reader) (name string, data io.Reader, err error) {
	const magic, headerSize = "!<arch>\n", 60
	begin := make([]byte, len(magic))
	if _, err := io.ReadFull(r, begin); err != nil {
		return "", nil, fmt.Errorf("reading it: %w", err)
	}
	if string(begin) != magic {
		return "", nil, errors.New("it is no package of Debian")
	}
	for first := true; ; first = false {
		header := make([]byte, headerSize)
		if _, err := io.ReadFull(r, header); err != nil {
			return "", nil, fmt.Errorf("it ends before its files: %w", err)
		}
		size, err := strconv.ParseInt(string(bytes.TrimSpace(header[48:58])), 10, 64)
		name := strings.TrimSuffix(string(bytes.TrimSpace(header[:16])), "/")
		if err != nil || size < 0 || string(header[58:]) != "`\n" || first && name != "debian-binary" {
			return "", nil, errors.New("it is no package of Debian, or damaged")
		}
		if strings.HasPrefix(name, "data.tar") {
			return name, &member{r: r, left: size}, nil
		}
		if _, err := io.CopyN(io.Discard, r, size+size%2); err != nil {
			return "", nil, fmt.Errorf("it ends before its files: %w", err)
		}
	}
}

// member reads a part of an archive. An archive that ends in it is an error.
type member struct {
	r    io.Reader
	left int64
}

// Read implements io.Reader.
func (m *member) Read(p []byte) (int, error) {
	if m.left == 0 {
		return 0, io.EOF
	}
	n, err := m.r.Read(p[:min(int64(len(p)), m.left)])
	if m.left -= int64(n); errors.Is(err, io.EOF) && m.left > 0 {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// untilDone is a reader that ends with a context.
type untilDone struct {
	ctx context.Context
	r   io.Reader
}

// Read implements io.Reader.
func (u untilDone) Read(p []byte) (int, error) {
	if u.ctx.Err() != nil {
		return 0, context.Cause(u.ctx)
	}
	return u.r.Read(p)
}

// Unpack unpacks the directories, files and links of a package into a directory, which it makes. Nothing gets out of the directory.
// Owners, times and rights but the one to execute are not kept.
func Unpack(ctx context.Context, file, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	return Walk(ctx, file, func(h *tar.Header, content io.Reader) error { return unpackEntry(root, h, content) })
}

func unpackEntry(root *os.Root, h *tar.Header, content io.Reader) error {
	if h.Typeflag == tar.TypeDir {
		return root.MkdirAll(h.Name, 0o755)
	}
	if err := root.MkdirAll(path.Dir(h.Name), 0o755); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeReg:
		f, err := root.OpenFile(h.Name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644|os.FileMode(h.Mode)&0o111)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, content)
		return errors.Join(err, f.Close())
	case tar.TypeSymlink:
		return root.Symlink(h.Linkname, h.Name)
	case tar.TypeLink:
		return root.Link(path.Clean(h.Linkname), h.Name)
	}
	return fmt.Errorf("%s is neither a file nor a directory nor a link", h.Name)
}
