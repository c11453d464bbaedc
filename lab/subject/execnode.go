package subject

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/hitless/hitless/internal/input"
)

// The keys of a description that prepare kernel, API and nodes for the proxy.

// maxFiles bounds the files of one folder.
const maxFiles = 10_000

// filesOf are the files of a folder by their names in it, sorted; the name of a file itself is empty. Links are refused: their targets
// may lie outside of the folder.
func filesOf(from string, limit int64) (names []string, err error) {
	if info, err := os.Stat(from); err != nil || !info.IsDir() {
		return []string{""}, input.Check(from, limit)
	}
	err = filepath.WalkDir(from, func(file string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			return nil
		case !entry.Type().IsRegular():
			return fmt.Errorf("%s is no regular file; a folder may have regular files and folders only", file)
		case len(names) == maxFiles:
			return fmt.Errorf("%s has more than %d files", from, maxFiles)
		}
		name, err := filepath.Rel(from, file)
		names = append(names, name)
		return errors.Join(err, input.Check(file, limit))
	})
	if err == nil && len(names) == 0 {
		err = fmt.Errorf("%s is a folder without files", from)
	}
	return names, err
}

var moduleName = regexp.MustCompile(`^[a-z0-9][a-z0-9_]*$`)

func (r *execReader) modules(n *yaml.Node) (modules []string) {
	r.list(n, "modules", func(entry *yaml.Node) {
		name := strings.ReplaceAll(entry.Value, "-", "_") // the kernel does not tell them apart
		switch {
		case entry.Kind != yaml.ScalarNode || !moduleName.MatchString(name):
			r.fail(entry.Line, "modules: %q; give the name of a kernel module, such as cls_bpf", entry.Value)
		case slices.Contains(modules, name):
			r.fail(entry.Line, "modules: %s is given twice", name)
		}
		modules = append(modules, name)
	})
	return modules
}

// mountable are the directories below which a file may mount. A mount elsewhere could hide files of the lab.
var mountable = []string{"/run/", "/var/run/", "/var/lib/", "/mnt/"}

func (r *execReader) mounts(n *yaml.Node) (mounts []Mount) {
	r.list(n, "mounts", func(entry *yaml.Node) {
		var m Mount
		has := r.mapping(entry, map[string]func(*yaml.Node){
			"kind": func(n *yaml.Node) { m.Kind = r.oneOf(n, "kind", MountKinds...) },
			"at": func(n *yaml.Node) {
				m.At = r.text(n, "at")
				within := slices.ContainsFunc(mountable, func(dir string) bool { return strings.HasPrefix(m.At, dir) })
				if path.Clean(m.At) != m.At || !within || strings.Contains(m.At, "{") {
					r.fail(n.Line, "at: %q; give an absolute path below %s", m.At, strings.Join(mountable, " "))
				}
			},
		})
		if has["kind"] == nil || has["at"] == nil {
			r.fail(entry.Line, "mounts: an entry needs kind: (one of %s) and at: (directory of the node)", strings.Join(MountKinds, ", "))
		}
		if slices.ContainsFunc(mounts, func(other Mount) bool { return other.At == m.At }) {
			r.fail(entry.Line, "mounts: %s is given twice", m.At)
		}
		mounts = append(mounts, m)
	})
	return mounts
}

// objectsDir is the guest's folder for manifests.
const objectsDir = ExecDir + "-objects"

// objects reads the manifests of files and folders. Files of a folder are in the order of their names.
func (r *execReader) objects(n *yaml.Node, e *Exec) {
	r.list(n, "objects", func(entry *yaml.Node) {
		from := r.onHost(r.text(entry, "objects"))
		names, err := filesOf(from, input.TextBytes)
		if err != nil {
			r.fail(entry.Line, "objects: %w", err)
		}
		for _, name := range names {
			file := filepath.Join(from, name)
			switch filepath.Ext(file) {
			case ".yaml", ".yml", ".json":
			default:
				r.fail(entry.Line, "objects: %s; a manifest's name ends in .yaml, .yml or .json", file)
				continue
			}
			if err := e.addManifest(r.ctx, file); err != nil {
				r.fail(entry.Line, "objects: %w", err)
			}
		}
	})
}

// kindsOf are the kinds of a manifest's objects. An object needs apiVersion, kind and metadata.name.
func kindsOf(file string, text []byte) (kinds []string, err error) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var root yaml.Node
		err := decoder.Decode(&root)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%s is not YAML: %w", file, err)
		}
		object := struct {
			APIVersion string `yaml:"apiVersion"`
			Kind       string `yaml:"kind"`
			Metadata   struct {
				Name string `yaml:"name"`
			} `yaml:"metadata"`
		}{}
		if err := root.Decode(&object); err != nil {
			return nil, input.Errorf(file, root.Line, "this is no object of the API: %w", err)
		}
		if object.APIVersion == "" || object.Kind == "" || object.Metadata.Name == "" {
			if len(root.Content) == 1 && root.Content[0].Tag == "!!null" {
				continue // only comments
			}
			return nil, input.Errorf(file, root.Line, "an object needs apiVersion, kind and metadata.name")
		}
		kind := object.Kind
		if group, _, grouped := strings.Cut(object.APIVersion, "/"); grouped {
			kind += "." + group
		}
		if !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	if len(kinds) == 0 {
		return nil, fmt.Errorf("%s has no object", file)
	}
	return kinds, nil
}
