package vm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/cavaliergopher/cpio"
)

// A guest boots with few files, so that its first snapshot serves every run of one hitless on one kernel. The others come after its first
// pause, in a second ivshmem-plain device: the length of the packed image (uint64, little endian), and from filesOffset on the image.
const (
	filesOffset = 4096
	// minFilesSize is the size of the device with the files. More files double it, and need a boot of their own.
	minFilesSize = 512 << 20
)

// filesSize returns the size of the device for a packed image with so many bytes: a power of two, as PCI asks for.
func filesSize(packed int64) int64 {
	size := int64(minFilesSize)
	for size < packed+filesOffset {
		size *= 2
	}
	return size
}

// BootImage takes the program, the guest's first one, out of the image of a guest, and returns an image with it and the modules: Boot's
// Initrd. The rest is for Boot's Files. missing are modules that the kernel lacks or has built in.
func BootImage(img *Image, k Kernel, program string, modules ...string) (boot *Image, missing []string, err error) {
	boot = NewImage()
	boot.files[program] = img.files[program]
	delete(img.files, program)
	boot.Link("/init", strings.TrimPrefix(program, "/"))
	missing, err = boot.AddModules(k, modules...)
	return boot, missing, err
}

// deviceFile is the file of the device with the files, on the host.
type deviceFile struct {
	*os.File
	size int64
}

// newDeviceFile makes the device's empty file.
func newDeviceFile(path string, size int64) (*deviceFile, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("making the memory for the guest's files: %w", err)
	}
	d := &deviceFile{f, size}
	if err := d.clear(); err != nil {
		f.Close()
		return nil, err
	}
	return d, nil
}

// put writes the packed image, which the guest unpacks when it goes on.
func (d *deviceFile) put(packed io.Reader) error {
	n, err := io.Copy(io.NewOffsetWriter(d, filesOffset), packed)
	if err == nil {
		_, err = d.WriteAt(binary.LittleEndian.AppendUint64(nil, uint64(n)), 0)
	}
	if err != nil {
		return fmt.Errorf("giving the guest its files: %w", err)
	}
	return nil
}

// clear removes the content, which a snapshot need not hold once the guest has unpacked it. The guest must be paused.
func (d *deviceFile) clear() error {
	if err := errors.Join(d.Truncate(0), d.Truncate(d.size)); err != nil {
		return fmt.Errorf("clearing the memory for the guest's files (%d MB): %w", d.size>>20, err)
	}
	return nil
}

// unpackFiles unpacks the files that the host has put into the device, inside the guest.
func unpackFiles() error {
	dev, err := pciDevice(filesDevice)
	if err != nil {
		return err
	}
	if dev == "" {
		return errors.New("the guest has no device with its files: it was not booted by hitless")
	}
	f, err := os.OpenFile(filepath.Join(dev, "resource2"), os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("opening the device with the guest's files: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("reading the size of the guest's files: %w", err)
	}
	memory, err := mapFile(f, 0, filesOffset, false)
	if err != nil {
		return fmt.Errorf("mapping the length of the guest's files: %w", err)
	}
	length := binary.LittleEndian.Uint64(memory)
	if err := unmap(memory); err != nil {
		return err
	}
	if length == 0 || length > uint64(info.Size())-filesOffset {
		return fmt.Errorf("the guest's files have %d bytes, in a device of %d", length, info.Size())
	}
	memory, err = mapFile(f, filesOffset, int(length), false)
	if err != nil {
		return fmt.Errorf("mapping the guest's files: %w", err)
	}
	return errors.Join(unpackImage("/", memory), unmap(memory))
}

// unpackImage writes the entries of a packed image below the root. Directories and links that are there already stay.
func unpackImage(root string, packed []byte) error {
	r := cpio.NewReader(bytes.NewReader(packed))
	buffer := make([]byte, 1<<20)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = unpackEntry(filepath.Join(root, h.Name), h, r, buffer)
		}
		if err != nil {
			return fmt.Errorf("unpacking the guest's files: %w", err)
		}
	}
}

func unpackEntry(name string, h *cpio.Header, content io.Reader, buffer []byte) error {
	var err error
	switch h.Mode &^ cpio.ModePerm {
	case cpio.TypeDir:
		err = os.Mkdir(name, 0o755)
	case cpio.TypeSymlink:
		err = os.Symlink(h.Linkname, name)
	default:
		return unpackFile(name, os.FileMode(h.Mode.Perm()), content, buffer)
	}
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

func unpackFile(name string, mode os.FileMode, content io.Reader, buffer []byte) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = io.CopyBuffer(struct{ io.Writer }{f}, content, buffer) // File.ReadFrom would not use the buffer
	return errors.Join(err, f.Close())
}
