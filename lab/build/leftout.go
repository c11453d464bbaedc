package build

import (
	"crypto/sha256"
	_ "embed" // for the replacements
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
)

//go:embed leftout/cilium-bgp-cell.go.txt
var ciliumBGP string

// replacements are the files of rows `leftout`, by their names.
var replacements = map[string]string{"cilium-bgp-cell.go.txt": ciliumBGP}

// leftOut is a part of a root module that is left out of its programs, because a module that only it imports is not served.
type leftOut struct {
	Module  string
	Minor   string // of the versions, as v1.20
	File    string // of the module, which is replaced
	By      string // file of replacements
	Part    string // as BGP
	Imports string // the module that is not served
}

// LeftOut names the part that is left out of the programs of a module's version, as BGP; empty for none.
func LeftOut(m module.Version) string {
	d, err := embedded()
	if err != nil {
		return "" // a test parses the embedded file
	}
	l, _ := d.leftOutOf(m)
	return l.Part
}

func (d *dataset) leftOutOf(m module.Version) (leftOut, bool) {
	i := slices.IndexFunc(d.leftOut, func(l leftOut) bool { return l.Module == m.Path && l.Minor == semver.MajorMinor(m.Version) })
	if i < 0 {
		return leftOut{}, false
	}
	return d.leftOut[i], true
}

// note is the note of the binaries.
func (l leftOut) note() string {
	return fmt.Sprintf("without %s: %s is replaced, because it needs %s, which is not served", l.Part, l.File, l.Imports)
}

// apply copies the root module to a directory and replaces the file there.
func (l leftOut) apply(root provider, to string) (provider, error) {
	text, has := replacements[l.By]
	if !has {
		return provider{}, fmt.Errorf("leaving %s out of %s: there is no file %s", l.Part, root.Real, l.By)
	}
	err := copyLocal(to, root)
	file := filepath.Join(to, filepath.FromSlash(l.File))
	if err == nil {
		_, err = os.Stat(file)
	}
	if err == nil {
		err = os.WriteFile(file, []byte(text), 0o644)
	}
	if err != nil {
		return provider{}, errors.Join(fmt.Errorf("leaving %s out of %s", l.Part, root.Real), err)
	}
	sum := sha256.Sum256([]byte(text))
	root.Dir, root.Local, root.Notes = to, true, append(root.Notes, l.note())
	root.Change = fmt.Sprintf("%s %s with %s of SHA-256 %s", root.Real, root.Sum, l.File, hex.EncodeToString(sum[:]))
	return root, nil
}
