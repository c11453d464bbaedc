// Command modproxy makes a module proxy with one version of this module, as `go install` would get it.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/mod/module"
	modzip "golang.org/x/mod/zip"
)

const path = "github.com/hitless/hitless"

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: modproxy FILES VERSION DIRECTORY")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "modproxy:", err)
		os.Exit(1)
	}
}

// write makes the files that the go command reads of a proxy (go help goproxy), with the committed files of this module in a directory.
func write(sources, version, dir string) error {
	files := filepath.Join(dir, path, "@v")
	if err := os.MkdirAll(files, 0o755); err != nil {
		return err
	}
	archive, err := os.Create(filepath.Join(files, version+".zip"))
	if err != nil {
		return err
	}
	err = modzip.CreateFromDir(archive, module.Version{Path: path, Version: version}, sources)
	if err := errors.Join(err, archive.Close()); err != nil {
		return err
	}
	mod, err := os.ReadFile(filepath.Join(sources, "go.mod"))
	if err != nil {
		return err
	}
	for name, text := range map[string]string{"list": version + "\n", version + ".mod": string(mod),
		version + ".info": fmt.Sprintf(`{"Version":%q,"Time":"2000-01-01T00:00:00Z"}`, version)} {
		if err := os.WriteFile(filepath.Join(files, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
