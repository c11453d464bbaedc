package results

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/hitless/hitless/internal/units"
)

// Programs are the programs that rows name, sorted, each once.
func Programs(rows []Row) (programs []string) {
	for _, r := range rows {
		if r.Program != "" {
			programs = append(programs, r.Program)
		}
	}
	slices.Sort(programs)
	return slices.Compact(programs)
}

// notRecorded is the text of a fact that a file does not tell.
const notRecorded = "not recorded"

// Origins is a Markdown table of what made rows, as their files tell, with a line for each program, kernel, control plane and day.
func Origins(rows []Row) string {
	type line struct {
		origin [4]string
		rows   int
		files  []string
	}
	var lines []line
	for _, r := range rows {
		o := originText(r)
		i := slices.IndexFunc(lines, func(l line) bool { return l.origin == o })
		if i < 0 {
			i, lines = len(lines), append(lines, line{origin: o})
		}
		lines[i].rows++
		if name := fileTitle(r.File); !slices.Contains(lines[i].files, name) {
			lines[i].files = append(lines[i].files, name)
		}
	}
	var b strings.Builder
	b.WriteString("| program | kernel | control plane | date | rows | of |\n|---|---|---|---|---:|---|\n")
	for _, l := range lines {
		of := strings.Join(l.files[:min(mostNames, len(l.files))], ", ")
		if more := len(l.files) - mostNames; more > 0 {
			of += fmt.Sprintf(" and %d more", more)
		}
		if len(lines) == 1 {
			of = "all"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", l.origin[0], l.origin[1], l.origin[2], l.origin[3], units.Thousands(l.rows), of)
	}
	return b.String()
}

// originText are the cells of a row's origin.
func originText(r Row) [4]string {
	cells := [4]string{notRecorded, notRecorded, notRecorded, notRecorded}
	if r.Program != "" {
		cells[0] = fmt.Sprintf("`%.12s…`", r.Program)
	}
	if r.Kernel != "" {
		cells[1] = r.Kernel
	}
	if r.ControlPlane != "" {
		cells[2] = r.ControlPlane
	}
	if r.Made != nil && len(r.Made.Started) >= len("2006-01-02") {
		cells[3] = r.Made.Started[:len("2006-01-02")]
	}
	return cells
}

// fileTitle is the name of a file of results without its ending; of one whose folder is its name, that of the folder.
func fileTitle(file string) string {
	name := strings.TrimSuffix(path.Base(file), path.Ext(file))
	if name == "conformance" {
		return path.Base(path.Dir(file))
	}
	return name
}
