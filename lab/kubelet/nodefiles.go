package kubelet

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	roots "github.com/hitless/hitless/lab/container"
)

// streams are the standard streams of a program; nil for none, and for its log.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// nodeFiles are the files of a node that pods use.
type nodeFiles interface {
	// volume makes a directory with files, unless it exists, and returns it.
	volume(dir string, files []volumeFile) (string, error)
	// hostPath makes a path of the node, if its type says so, or checks it.
	hostPath(path string, kind corev1.HostPathType) error
	// below makes a directory below a volume, unless it or a file exists, and returns its path.
	below(volume, name string) (string, error)
	removeVolumes(dir string) error
	// used returns how many bytes a container's root has, without what is mounted there.
	used(root *roots.Root) (int64, error)
	// read returns the beginning of a file.
	read(file string, most int64) (string, error)
}

func (h *nodeHost) volume(dir string, files []volumeFile) (string, error) {
	return dir, h.node.Inside(func() error {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("making a volume: %w", err)
		}
		if err := os.Chmod(dir, 0o777); err != nil { // as an emptyDir
			return fmt.Errorf("making a volume: %w", err)
		}
		root, err := os.OpenRoot(dir)
		if err != nil {
			return fmt.Errorf("making a volume: %w", err)
		}
		defer root.Close()
		for _, f := range files {
			if err := root.MkdirAll(filepath.Dir(f.name), 0o755); err != nil {
				return fmt.Errorf("making a volume: %w", err)
			}
			if err := root.WriteFile(f.name, f.data, 0o600); err != nil {
				return fmt.Errorf("making a volume: %w", err)
			}
			if err := root.Chmod(f.name, f.mode); err != nil {
				return fmt.Errorf("making a volume: %w", err)
			}
		}
		return nil
	})
}

func (h *nodeHost) hostPath(path string, kind corev1.HostPathType) error {
	return h.node.Inside(func() (err error) {
		switch kind {
		case corev1.HostPathDirectoryOrCreate:
			return os.MkdirAll(path, 0o755)
		case corev1.HostPathFileOrCreate:
			f, err := os.OpenFile(path, os.O_CREATE, 0o644)
			if err != nil {
				return err
			}
			return f.Close()
		}
		_, err = os.Stat(path)
		return err
	})
}

func (h *nodeHost) below(volume, name string) (string, error) {
	path := filepath.Join(volume, filepath.Clean("/"+name))
	return path, h.node.Inside(func() error {
		if _, err := os.Stat(path); err == nil {
			return nil
		}
		return os.MkdirAll(path, 0o755)
	})
}

func (h *nodeHost) removeVolumes(dir string) error {
	return h.node.Inside(func() error { return os.RemoveAll(dir) })
}

func (h *nodeHost) read(file string, most int64) (text string, err error) {
	var b strings.Builder
	err = h.node.Inside(func() error {
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = io.Copy(&b, io.LimitReader(f, most))
		return err
	})
	return b.String(), err
}

func (h *nodeHost) used(root *roots.Root) (bytes int64, err error) {
	err = h.node.Inside(func() error {
		return root.Enter(func() error {
			var s unix.Statfs_t
			if err := unix.Statfs("/", &s); err != nil {
				return fmt.Errorf("measuring a container's root: %w", err)
			}
			bytes = int64(s.Blocks-s.Bfree) * s.Bsize
			return nil
		})
	})
	return bytes, err
}
