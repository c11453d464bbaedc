//go:build linux

package container

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
)

// LookPath finds a program as a container runtime does: relative to the working directory, or in the PATH of env. It must be called inside of
// the root.
func LookPath(name, dir string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		if !path.IsAbs(name) {
			name = path.Join("/", dir, name)
		}
		return name, executable(name)
	}
	where := ""
	for _, variable := range env {
		if value, is := strings.CutPrefix(variable, "PATH="); is {
			where = value
		}
	}
	for _, in := range strings.Split(where, ":") {
		if file := path.Join(in, name); executable(file) == nil {
			return file, nil
		}
	}
	return "", fmt.Errorf("exec: %q: executable file not found in $PATH", name)
}

func executable(file string) error {
	info, err := os.Stat(file)
	if err == nil && (info.IsDir() || info.Mode()&0o111 == 0) {
		err = &fs.PathError{Op: "exec", Path: file, Err: fs.ErrPermission}
	}
	return err
}
