package vm

import (
	"bufio"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/cavaliergopher/cpio"
	"golang.org/x/sync/errgroup"

	"github.com/hitless/hitless/internal/cache"
)

// Image is the content of an initramfs: files and links by their path in the guest. Packing is reproducible: names
// are sorted, times are zero.
type Image struct {
	files map[string]source
}

type source struct {
	path string // on the host; empty for content or a link
	text string
	link string
	mode os.FileMode
	sum  []byte // SHA-256 of the host's file if the caller computed it, else nil
}

// NewImage returns an image with the symbolic links of a merged /usr.
func NewImage() *Image {
	img := &Image{files: map[string]source{}}
	for _, dir := range []string{"bin", "sbin", "lib", "lib64"} {
		img.Link("/"+dir, "usr/"+dir)
	}
	return img
}

// Add adds a file of the host to the image.
func (img *Image) Add(guest, host string, mode os.FileMode) {
	img.files[usr(guest)] = source{path: host, mode: mode}
}

// AddWithSum is Add for a file whose SHA-256 (in hex) the caller has already computed, so that Digest need not read
// the file.
func (img *Image) AddWithSum(guest, host string, mode os.FileMode, sum string) error {
	known, err := hex.DecodeString(sum)
	if err != nil || len(known) != sha256.Size {
		return fmt.Errorf("%q is not a SHA-256 checksum (of %s)", sum, host)
	}
	img.files[usr(guest)] = source{path: host, mode: mode, sum: known}
	return nil
}

// Has reports whether the image has an entry at a path of the guest.
func (img *Image) Has(guest string) bool {
	_, there := img.files[usr(guest)]
	return there
}

// Text adds a file with the given content to the image.
func (img *Image) Text(guest, content string) {
	img.files[usr(guest)] = source{text: content, mode: 0o644}
}

// Link adds a symbolic link to the image.
func (img *Image) Link(guest, target string) { img.files[guest] = source{link: target} }

// usr maps a path such as /lib/x to /usr/lib/x, the target of NewImage's links.
func usr(guest string) string {
	for _, dir := range []string{"/bin/", "/sbin/", "/lib/", "/lib64/"} {
		if strings.HasPrefix(guest, dir) {
			return "/usr" + guest
		}
	}
	return guest
}

// AddProgram adds a program of the host and its shared libraries to the image.
func (img *Image) AddProgram(guest, host string) error {
	real, err := filepath.EvalSymlinks(host)
	if err != nil {
		return fmt.Errorf("finding the program %s: %w", host, err)
	}
	img.Add(guest, real, 0o755)
	return img.addLibraries(real)
}

func (img *Image) addLibraries(program string) error {
	f, err := elf.Open(program)
	if err != nil {
		return fmt.Errorf("reading the libraries of %s: %w", program, err)
	}
	defer f.Close()
	if interp := f.Section(".interp"); interp != nil {
		name, err := interp.Data()
		if err != nil {
			return fmt.Errorf("reading the loader of %s: %w", program, err)
		}
		loader := strings.TrimRight(string(name), "\x00")
		real, err := filepath.EvalSymlinks(loader)
		if err != nil {
			return fmt.Errorf("finding the loader of %s: %w", program, err)
		}
		img.Add(loader, real, 0o755)
	}
	needed, err := f.ImportedLibraries()
	if err != nil {
		return fmt.Errorf("reading the libraries of %s: %w", program, err)
	}
	for _, name := range needed {
		if err := img.addLibrary(name); err != nil {
			return fmt.Errorf("%s: %w", program, err)
		}
	}
	return nil
}

func (img *Image) addLibrary(name string) error {
	for _, dir := range []string{"/usr/lib/x86_64-linux-gnu", "/lib/x86_64-linux-gnu", "/usr/lib", "/lib"} {
		file := filepath.Join(dir, name)
		real, err := filepath.EvalSymlinks(file)
		if err != nil {
			continue
		}
		guest := usr(file)
		if _, there := img.files[guest]; there {
			return nil
		}
		img.Add(guest, real, 0o755)
		return img.addLibraries(real)
	}
	return fmt.Errorf("the library %s is not on this machine", name)
}

// File is one entry of an image: a file of the host, a text or a symbolic link, with its path in the guest.
type File struct {
	Guest string      `json:"guest"`
	Host  string      `json:"host,omitempty"`
	Text  string      `json:"text,omitempty"`
	Link  string      `json:"link,omitempty"`
	Mode  os.FileMode `json:"mode,omitempty"`
}

// Files returns the entries sorted by path, for guests without an initramfs (package lab/host).
func (img *Image) Files() []File {
	files := make([]File, 0, len(img.files))
	for _, name := range img.names() {
		s := img.files[name]
		files = append(files, File{Guest: name, Host: s.path, Text: s.text, Link: s.link, Mode: s.mode})
	}
	return files
}

// Folders are the directories that every guest has.
var Folders = []string{"/dev", "/proc", "/sys", "/run", "/tmp", "/etc", "/var/run"}

// Pack writes the image into the cache directory dir, named by its digest, and returns its path and digest. An image
// that is cached already is not written again.
func (img *Image) Pack(dir string) (file, digest string, err error) {
	if digest, err = img.Digest(); err != nil {
		return "", "", err
	}
	file = filepath.Join(dir, imagePrefix+digest[:24]+".cpio")
	if cache.MarkUsed(file) == nil {
		return file, digest, nil
	}
	packed, err := cache.Create(dir)
	if err != nil {
		return "", "", fmt.Errorf("packing the guest's files: %w", err)
	}
	defer packed.Discard()
	out := bufio.NewWriterSize(packed, 1<<20)
	if err = errors.Join(img.write(out), out.Flush()); err == nil {
		err = packed.Finish(filepath.Base(file))
	}
	if err != nil {
		return "", "", fmt.Errorf("packing the guest's files into %s: %w", file, err)
	}
	return file, digest, cache.Prune(dir, imagePrefix, imageLimit, time.Now())
}

// imagePrefix is the prefix of the names of packed images.
const imagePrefix = "lab-"

// imageLimit bounds the packed images: each build of a program adds another of 100 MB or more. MinAge covers the time
// between packing and booting, in which no lock holds the image.
var imageLimit = cache.Limit{Keep: 8, MinAge: 10 * time.Minute}

// Digest returns the SHA-256 of names, modes and contents, in hex. It reads the content of files, because a rebuilt
// program keeps its path; files of AddWithSum are not read.
func (img *Image) Digest() (string, error) {
	names := img.names()
	sums := make([][]byte, len(names))
	var readers errgroup.Group
	readers.SetLimit(runtime.GOMAXPROCS(0))
	for i, name := range names {
		readers.Go(func() error {
			s := img.files[name]
			if sums[i] = s.sum; s.sum != nil {
				return nil
			}
			sum := sha256.New()
			if s.path != "" {
				if err := copyFile(sum, s.path); err != nil {
					return fmt.Errorf("reading %s for the guest: %w", s.path, err)
				}
			}
			sums[i] = sum.Sum(nil)
			return nil
		})
	}
	if err := readers.Wait(); err != nil {
		return "", err
	}
	all := sha256.New()
	for i, name := range names {
		s := img.files[name]
		fmt.Fprintf(all, "%q %q %q %o %x\n", name, s.link, s.text, s.mode, sums[i])
	}
	return hex.EncodeToString(all.Sum(nil)), nil
}

func (img *Image) names() []string {
	names := make([]string, 0, len(img.files))
	for name := range img.files {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (img *Image) write(out io.Writer) error {
	w := cpio.NewWriter(out)
	made := map[string]bool{"/": true}
	for _, name := range img.names() {
		if err := writeDirs(w, made, path.Dir(name)); err != nil {
			return err
		}
		if err := writeFile(w, name, img.files[name]); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	// The kernel opens the console before it starts init.
	for _, dir := range Folders {
		if err := writeDirs(w, made, dir); err != nil {
			return err
		}
	}
	return w.Close()
}

func writeDirs(w *cpio.Writer, made map[string]bool, dir string) error {
	if made[dir] {
		return nil
	}
	if err := writeDirs(w, made, path.Dir(dir)); err != nil {
		return err
	}
	made[dir] = true
	return w.WriteHeader(&cpio.Header{Name: strings.TrimPrefix(dir, "/"), Mode: cpio.TypeDir | 0o755, ModTime: time.Unix(0, 0)})
}

func writeFile(w *cpio.Writer, name string, s source) error {
	h := &cpio.Header{Name: strings.TrimPrefix(name, "/"), Mode: cpio.TypeReg | cpio.FileMode(s.mode), ModTime: time.Unix(0, 0)}
	switch {
	case s.link != "":
		h.Mode = cpio.TypeSymlink | 0o777 // the target is the content
		return writeText(w, h, s.link)
	case s.path == "":
		return writeText(w, h, s.text)
	}
	info, err := os.Stat(s.path)
	if err != nil {
		return err
	}
	h.Size = info.Size()
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	return copyFile(w, s.path)
}

func writeText(w *cpio.Writer, h *cpio.Header, text string) error {
	h.Size = int64(len(text))
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	_, err := io.WriteString(w, text)
	return err
}

func copyFile(w io.Writer, file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(w, f)
	return err
}
