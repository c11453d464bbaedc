// Command modproxy makes a module proxy with one version of this module, of the committed files alone, as `go install` would get it.
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
		fmt.Fprintln(os.Stderr, "usage: modproxy REPOSITORY VERSION DIRECTORY")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "modproxy:", err)
		os.Exit(1)
	}
}

// write makes the files that the go command reads of a proxy (go help goproxy).
func write(repository, version, dir string) error {
	files := filepath.Join(dir, path, "@v")
	if err := os.MkdirAll(files, 0o755); err != nil {
		return err
	}
	archive, err := os.Create(filepath.Join(files, version+".zip"))
	if err != nil {
		return err
	}
	err = modzip.CreateFromVCS(archive, module.Version{Path: path, Version: version}, repository, "HEAD", "")
	if err := errors.Join(err, archive.Close()); err != nil {
		return err
	}
	mod, err := os.ReadFile(filepath.Join(repository, "go.mod"))
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
