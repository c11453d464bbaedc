package vm

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
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

// Script adds a small program of a shell with the given content.
func (img *Image) Script(guest, content string) {
	img.files[usr(guest)] = source{text: content, mode: 0o755}
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

// Packed is an image in the cache.
type Packed struct {
	File   string
	Sha256 string // of File, in hex
}

// Pack writes the image into the cache directory dir. An intact image that is cached already is not written again. report gets
// a line about a damaged one, which is replaced.
func (img *Image) Pack(ctx context.Context, dir string, report func(string)) (Packed, error) {
	sums, err := img.sums()
	if err != nil {
		return Packed{}, err
	}
	key := img.digest(sums)[:24]
	packed, err := cache.Verified(ctx, cache.Source[Packed]{
		Lock: filepath.Join(dir, cache.LockName), Report: report,
		Open: func() (Packed, error) { return openImage(ctx, dir, key) },
		Make: func() (Packed, error) { return img.pack(dir, key, sums) },
	})
	if err != nil {
		return Packed{}, fmt.Errorf("packing the guest's files into %s: %w", dir, err)
	}
	return packed, nil
}

// openImage verifies the packed image with the key. The error of a missing one wraps fs.ErrNotExist.
func openImage(ctx context.Context, dir, key string) (Packed, error) {
	files, _ := filepath.Glob(filepath.Join(dir, imagePrefix+key+"-*"+imageSuffix))
	if len(files) == 0 {
		return Packed{}, fmt.Errorf("finding the image %s in the cache: %w", key, fs.ErrNotExist)
	}
	var damage error
	for _, file := range files {
		_ = cache.MarkUsed(file) // fails where the cache cannot be written, which then needs no pruning
		sum := imageSum(file)
		err := cache.Check(ctx, file, cache.Manifest{cache.Itself: sum})
		if err == nil {
			return Packed{file, sum}, nil
		}
		damage = err
	}
	return Packed{}, damage
}

// imageSum is the SHA-256 in the name of a packed image.
func imageSum(file string) string {
	name := strings.TrimSuffix(filepath.Base(file), imageSuffix)
	return name[strings.LastIndexByte(name, '-')+1:]
}

// pack writes the image with the digests of its files, and removes other files with the key: they are damaged. The caller has
// the lock.
func (img *Image) pack(dir, key string, sums [][]byte) (Packed, error) {
	damaged, _ := filepath.Glob(filepath.Join(dir, imagePrefix+key+"-*"+imageSuffix))
	packed, err := cache.Create(dir)
	if err != nil {
		return Packed{}, err
	}
	defer packed.Discard()
	sum := sha256.New()
	out := bufio.NewWriterSize(io.MultiWriter(packed, sum), 1<<20)
	if err := errors.Join(img.write(out, sums), out.Flush()); err != nil {
		return Packed{}, err
	}
	done := Packed{Sha256: hex.EncodeToString(sum.Sum(nil))}
	done.File = filepath.Join(dir, imagePrefix+key+"-"+done.Sha256+imageSuffix)
	if err := errors.Join(cache.Clear(done.File), packed.Finish(filepath.Base(done.File))); err != nil {
		return Packed{}, err
	}
	for _, file := range damaged {
		if file != done.File {
			err = errors.Join(err, os.RemoveAll(file))
		}
	}
	return done, errors.Join(err, cache.Prune(dir, imagePrefix, imageLimit, time.Now()))
}

// A packed image is named by its key, the digest of the files in it, and by the SHA-256 of its bytes.
const (
	imagePrefix = "lab-"
	imageSuffix = ".cpio"
)

// imageLimit bounds the packed images: each build of a program adds another of 100 MB or more. MinAge covers the time
// between packing and booting, in which no lock holds the image.
var imageLimit = cache.Limit{Keep: 8, MinAge: 10 * time.Minute}

// Digest returns the SHA-256 of names, modes and contents, in hex. It reads the content of files, because a rebuilt
// program keeps its path; files of AddWithSum are not read.
func (img *Image) Digest() (string, error) {
	sums, err := img.sums()
	if err != nil {
		return "", err
	}
	return img.digest(sums), nil
}

// sums are the SHA-256 of the contents in the order of names.
func (img *Image) sums() ([][]byte, error) {
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
	return sums, readers.Wait()
}

func (img *Image) digest(sums [][]byte) string {
	all := sha256.New()
	for i, name := range img.names() {
		s := img.files[name]
		fmt.Fprintf(all, "%q %q %q %o %x\n", name, s.link, s.text, s.mode, sums[i])
	}
	return hex.EncodeToString(all.Sum(nil))
}

func (img *Image) names() []string {
	names := make([]string, 0, len(img.files))
	for name := range img.files {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// write packs the files. A file whose content is not that of its sum any more is an error.
func (img *Image) write(out io.Writer, sums [][]byte) error {
	w := cpio.NewWriter(out)
	made := map[string]bool{"/": true}
	for i, name := range img.names() {
		if err := writeDirs(w, made, path.Dir(name)); err != nil {
			return err
		}
		if err := writeFile(w, name, img.files[name], sums[i]); err != nil {
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

func writeFile(w *cpio.Writer, name string, s source, sum []byte) error {
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
	packed := sha256.New()
	if err := copyFile(io.MultiWriter(w, packed), s.path); err != nil {
		return err
	}
	if found := packed.Sum(nil); !bytes.Equal(found, sum) {
		return fmt.Errorf("%s changed: its sha256 was %x and is %x; try again, and check the cache with `hitless doctor --cache`", s.path, sum, found)
	}
	return nil
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
