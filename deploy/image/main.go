// Command image puts a static program into an OCI image without Docker, and writes down what the program is made of. What it
// writes is a function of the program and of the image's name alone: no clock, no folder, no user of this machine enters it.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

func main() {
	var o options
	flag.StringVar(&o.program, "program", "bin/hitless", "the static program, a `FILE`")
	flag.StringVar(&o.name, "name", "hitless:latest", "`NAME` under which the image is loaded, with a tag; it is no part of the image's digest")
	flag.StringVar(&o.out, "out", "out/image", "`FOLDER` for the image and its bill of materials")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "image: what is %q? Everything is said by flags; -h lists them\n", flag.Arg(0))
		os.Exit(2)
	}
	if err := write(o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// options are what the image is made of, and where it goes.
type options struct{ program, name, out string }

// The files that write makes in the folder.
const (
	archiveFile = "hitless.oci.tar"
	billFile    = "hitless.cdx.json"
)

// write makes the image and its bill of materials, and says where they are.
func write(o options, say io.Writer) error {
	p, err := readProgram(o.program)
	if err != nil {
		return err
	}
	full, err := fullName(o.name)
	if err != nil {
		return err
	}
	img, err := newImage(p)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return fmt.Errorf("making the folder for the image: %w; name another with --out", err)
	}
	archive, bill := filepath.Join(o.out, archiveFile), filepath.Join(o.out, billFile)
	if err := writeFile(archive, func(w io.Writer) error { return img.archive(w, o.name, full) }); err != nil {
		return err
	}
	if err := writeFile(bill, func(w io.Writer) error { return writeBill(w, p, img) }); err != nil {
		return err
	}
	_, err = fmt.Fprintf(say, "image %s\ndigest %s\narchive %s\nbill of materials %s\n", o.name, img.manifest.Digest, archive, bill)
	return err
}

// writeFile writes a file whole, or leaves the one that was there.
func writeFile(name string, fill func(io.Writer) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(name), ".image-")
	if err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	defer os.Remove(f.Name()) // it has another name when all went well
	err = fill(f)
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Chmod(f.Name(), 0o644)
	}
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return nil
}
