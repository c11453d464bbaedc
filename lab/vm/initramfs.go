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

// Image is the content of an initramfs: what stands at which path of the guest. Packed twice it gives the same bytes:
// sorted names, zero times, nothing random.
type Image struct {
	files map[string]source
}

type source struct {
	path string // on the host; empty for content or a link
	text string
	link string
	mode os.FileMode
	sum  []byte // SHA-256 of the host's file where somebody has just made it, else nil
}

// NewImage returns an image with the usual links of a merged /usr.
func NewImage() *Image {
	img := &Image{files: map[string]source{}}
	for _, dir := range []string{"bin", "sbin", "lib", "lib64"} {
		img.Link("/"+dir, "usr/"+dir)
	}
	return img
}

// Add puts a file of the host into the image.
func (img *Image) Add(guest, host string, mode os.FileMode) {
	img.files[usr(guest)] = source{path: host, mode: mode}
}

// AddKnown is Add for a file whose SHA-256 (in hex) somebody has just made, so that Digest need not read it again.
func (img *Image) AddKnown(guest, host string, mode os.FileMode, sum string) error {
	known, err := hex.DecodeString(sum)
	if err != nil || len(known) != sha256.Size {
		return fmt.Errorf("%q is no SHA-256 of %s", sum, host)
	}
	img.files[usr(guest)] = source{path: host, mode: mode, sum: known}
	return nil
}

// Has tells whether something stands at a path of the image.
func (img *Image) Has(guest string) bool {
	_, there := img.files[usr(guest)]
	return there
}

// Text puts a file with the given content into the image.
func (img *Image) Text(guest, content string) {
	img.files[usr(guest)] = source{text: content, mode: 0o644}
}

// Link puts a symbolic link into the image.
func (img *Image) Link(guest, target string) { img.files[guest] = source{link: target} }

// usr moves a path of the old layout below /usr, where the links of NewImage point.
func usr(guest string) string {
	for _, dir := range []string{"/bin/", "/sbin/", "/lib/", "/lib64/"} {
		if strings.HasPrefix(guest, dir) {
			return "/usr" + guest
		}
	}
	return guest
}

// AddProgram puts a program of the host and the shared libraries that it needs into the image.
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

// File is one entry of an image: a file of this machine, a text or a symbolic link, and its path in the guest.
type File struct {
	Guest string      `json:"guest"`
	Host  string      `json:"host,omitempty"`
	Text  string      `json:"text,omitempty"`
	Link  string      `json:"link,omitempty"`
	Mode  os.FileMode `json:"mode,omitempty"`
}

// Files are the entries in the order of their paths, for a guest that is not booted (see lab/host).
func (img *Image) Files() []File {
	files := make([]File, 0, len(img.files))
	for _, name := range img.names() {
		s := img.files[name]
		files = append(files, File{Guest: name, Host: s.path, Text: s.text, Link: s.link, Mode: s.mode})
	}
	return files
}

// Folders are in every guest, whatever its files.
var Folders = []string{"/dev", "/proc", "/sys", "/run", "/tmp", "/etc", "/var/run"}

// Pack writes the image into the cache, named by its content, and returns its path and digest. A cached one is not
// written again.
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

// imagePrefix begins the names of packed images.
const imagePrefix = "lab-"

// imageLimit bounds the packed images: each build of a program makes another of 100 MB and more. MinAge covers the time between
// packing and booting, in which nothing holds an image.
var imageLimit = cache.Limit{Keep: 8, MinAge: 10 * time.Minute}

// Digest is over names, modes and contents. Contents of files are read through unless they are known, so that a program that was
// built anew at the same path is another image.
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
