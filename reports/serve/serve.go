// Package serve shows the runs in a folder and their trends over HTTP. It reads only the reports and logs of runs, and nothing outside of the
// folder.
package serve

import (
	"bytes"
	"crypto/ed25519"
	_ "embed"
	"errors"
	"fmt"
	"html"
	"html/template"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/hitless/hitless/internal/units"
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

// logs is the folder of a run whose files are served as text.
const logs = "logs"

// Handler serves the runs below a folder: the list and the trends at /, a run's reports at /run/PATH/FILE and its logs at
// /run/PATH/logs/FILE. Each request of the list scans the folder. Symbolic links that lead out of the folder are not followed.
type Handler struct {
	root     *os.Root
	scanner  scanner
	index    *template.Template
	loopback bool
}

// Open makes the handler of a folder. With loopback, the host of a request must be a loopback address or localhost, which prevents DNS
// rebinding by other sites. key is as for record.OpenSigned. Close it after use.
func Open(dir string, loopback bool, key ed25519.PublicKey) (*Handler, error) {
	// Opening a named pipe would wait for its writer.
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		err = errors.New("it is no folder")
	}
	var root *os.Root
	if err == nil {
		root, err = os.OpenRoot(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("serving %s: %w; give a folder with runs", dir, err)
	}
	index, err := template.New("index").Funcs(template.FuncMap{"time": timeOf, "gap": gapText, "link": link, "plural": units.Plural}).Parse(indexTemplate)
	if err != nil {
		return nil, fmt.Errorf("reading the template of the list: %w", err)
	}
	return &Handler{root: root, scanner: scanner{folder: root.FS(), key: key}, index: index, loopback: loopback}, nil
}

// Close closes the folder.
func (h *Handler) Close() error { return h.root.Close() }

// ServeHTTP answers GET and HEAD.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	head := w.Header()
	head.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'self'")
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
		h.serveIndex(w, r.URL.Query().Get("q"))
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

// serveIndex sends the list of the runs that have all words of a search.
func (h *Handler) serveIndex(w http.ResponseWriter, search string) {
	runs, broken := h.scanner.scan()
	words, all := strings.Fields(strings.ToLower(search)), len(runs)
	runs = slices.DeleteFunc(runs, func(r run) bool { return !r.has(words) })
	var b bytes.Buffer
	err := h.index.Execute(&b, map[string]any{"Runs": runs, "Broken": broken, "Trends": trends(runs), "Search": search, "All": all,
		"Width": chartWidth, "Height": chartHeight, "Left": chartLeft, "Right": chartWidth - chartRight, "Base": chartHeight - chartBottom, "Top": chartTop})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(b.Bytes()) // an error means that the client has disconnected
}

// serveFile sends a file of a run, or the list of its logs. os.Root refuses paths that leave the folder.
func (h *Handler) serveFile(w http.ResponseWriter, r *http.Request, name string) {
	dir, file := path.Split(name)
	kind, known := types[file]
	if dir = path.Clean(dir); !known && path.Base(dir) == logs {
		dir, kind, known = path.Dir(dir), "text/plain; charset=utf-8", true
	}
	if clean := path.Clean(name); !known || name != clean && (file != "" || name != clean+"/") {
		http.NotFound(w, r)
		return
	}
	if _, err := h.root.Stat(path.Join(dir, reports.ReportFile)); err != nil { // not the folder of a run
		http.NotFound(w, r)
		return
	}
	if err := h.scanner.damage(dir); err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	if file == "" {
		h.serveLogs(w, r, dir)
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

// serveLogs sends the list of a run's logs.
func (h *Handler) serveLogs(w http.ResponseWriter, r *http.Request, dir string) {
	entries, err := fs.ReadDir(h.root.FS(), path.Join(dir, logs))
	if err != nil {
		http.NotFound(w, r)
		return
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"color-scheme\" content=\"light dark\"><title>logs of %s</title>\n<h1>Logs of %[1]s</h1>\n<ul>\n", html.EscapeString(dir))
	for _, e := range entries {
		if e.Type().IsRegular() {
			fmt.Fprintf(&b, "<li><a href=\"%s\">%s</a></li>\n", link(dir, path.Join(logs, e.Name())), html.EscapeString(e.Name()))
		}
	}
	b.WriteString("</ul>\n</html>\n")
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(b.Bytes()) // an error means that the client has disconnected
}

// link is the address of a run's report.
func link(dir, file string) string {
	return (&url.URL{Path: "/run/" + path.Join(dir, file)}).EscapedPath()
}
