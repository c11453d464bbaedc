// Package serve shows the runs in a folder and what they say together, over HTTP. It only reads: nothing outside the
// folder, and in it nothing but the reports of runs.
package serve

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path"
	"strings"

	"github.com/hitless/hitless/reports"
)

//go:embed index.html
var indexTemplate string

// types are the files of a run that are served.
var types = map[string]string{
	reports.PageFile:    "text/html; charset=utf-8",
	reports.ReportFile:  "application/json",
	reports.JUnitFile:   "application/xml",
	reports.SummaryFile: "text/plain; charset=utf-8",
}

// Handler serves the runs below a folder: the list and the trends at /, a run's reports at /run/PATH/FILE. The folder is
// looked through at each request of the list. Links that lead out of it are not followed.
type Handler struct {
	root     *os.Root
	scanner  scanner
	index    *template.Template
	loopback bool
}

// Open makes the handler of a folder. With loopback, requests must name a loopback address or localhost as their host,
// so that no page from elsewhere can read the runs through a name of its own. Close it after use.
func Open(dir string, loopback bool) (*Handler, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("serving %s: %w; give a folder with runs", dir, err)
	}
	index, err := template.New("index").Funcs(template.FuncMap{"time": timeOf, "gap": gapText, "link": link}).Parse(indexTemplate)
	if err != nil {
		return nil, fmt.Errorf("reading the template of the list: %w", err)
	}
	return &Handler{root: root, scanner: scanner{folder: root.FS()}, index: index, loopback: loopback}, nil
}

// Close ends the use of the folder.
func (h *Handler) Close() error { return h.root.Close() }

// ServeHTTP answers GET and HEAD.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	head := w.Header()
	head.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("Referrer-Policy", "no-referrer")
	head.Set("Cache-Control", "no-cache")
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		head.Set("Allow", "GET, HEAD")
		http.Error(w, "this server only reads", http.StatusMethodNotAllowed)
	case h.loopback && !isLoopback(r.Host):
		http.Error(w, "ask for localhost or 127.0.0.1", http.StatusForbidden)
	case r.URL.Path == "/":
		h.serveIndex(w)
	default:
		rest, ok := strings.CutPrefix(r.URL.Path, "/run/")
		if !ok {
			http.NotFound(w, r)
			return
		}
		h.serveFile(w, r, rest)
	}
}

func isLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	address, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return host == "localhost" || (err == nil && address.IsLoopback())
}

func (h *Handler) serveIndex(w http.ResponseWriter) {
	runs, broken := h.scanner.scan()
	var b bytes.Buffer
	err := h.index.Execute(&b, map[string]any{"Runs": runs, "Broken": broken, "Trends": trends(runs),
		"Width": chartWidth, "Height": chartHeight, "Left": chartLeft, "Right": chartWidth - chartRight, "Base": chartHeight - chartBottom, "Top": chartTop})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(b.Bytes()) // a client that has gone needs no answer
}

// serveFile answers with a file of a run. The root refuses every path that leaves it, by dots or by links.
func (h *Handler) serveFile(w http.ResponseWriter, r *http.Request, name string) {
	dir, file := path.Split(name)
	kind, known := types[file]
	if !known || name != path.Clean(name) {
		http.NotFound(w, r)
		return
	}
	if _, err := h.root.Stat(path.Join(dir, reports.ReportFile)); err != nil { // not the folder of a run
		http.NotFound(w, r)
		return
	}
	f, err := h.root.Open(name)
	if err != nil {
		http.NotFound(w, r)
		return
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", kind)
	http.ServeContent(w, r, "", info.ModTime(), io.NewSectionReader(f, 0, info.Size()))
}

// link is the address of a run's report.
func link(dir, file string) string {
	return (&url.URL{Path: "/run/" + path.Join(dir, file)}).EscapedPath()
}
