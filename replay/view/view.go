// Package view serves the viewer's page on this machine, with captures open in
// it. The page is built by `make viewer` and embedded; a program that was built
// without it has none and says so.
package view

import (
	"crypto/rand"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"wiretape/capture"
	"wiretape/internal/jsontext"
)

//go:embed all:dist
var dist embed.FS

// ErrNoPage: this program was built without the page.
var ErrNoPage = errors.New("this program was built without the viewer's page")

// MaxFiles is how many files one page is given.
const MaxFiles = 100_000

// Page is the built page, ErrNoPage where there is none.
func Page() (fs.FS, error) {
	sub, err := fs.Sub(dist, "dist")
	if err != nil {
		return nil, err
	}
	if _, err := fs.Stat(sub, "index.html"); err != nil {
		return nil, ErrNoPage
	}
	return sub, nil
}

// File is one file that the page may read.
type File struct {
	// Path is what the page calls it: the file's name, or its path from the
	// folder that was named.
	Path string
	// Name is where it lies.
	Name string
	Size int64
}

// Files finds the regular files that the inputs name; a folder stands for all
// in it.
func Files(inputs []string) ([]File, error) {
	var out []File
	add := func(name, as string, size int64) error {
		if len(out) == MaxFiles {
			return fmt.Errorf("more than %d files", MaxFiles)
		}
		out = append(out, File{Path: filepath.ToSlash(as), Name: name, Size: size})
		return nil
	}
	for _, in := range inputs {
		st, err := os.Stat(in)
		if err != nil {
			return nil, err
		}
		if st.Mode().IsRegular() {
			if err := add(in, filepath.Base(in), st.Size()); err != nil {
				return nil, err
			}
			continue
		}
		if !st.IsDir() {
			return nil, fmt.Errorf("%s is neither a file nor a folder", in)
		}
		base := filepath.Dir(filepath.Clean(in))
		err = filepath.WalkDir(in, func(name string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			info, err := d.Info()
			if errors.Is(err, fs.ErrNotExist) {
				return nil // a recorder is at work: renamed or pruned meanwhile
			}
			if err != nil {
				return err
			}
			as, err := filepath.Rel(base, name)
			if err != nil {
				as = filepath.Base(name)
			}
			return add(name, as, info.Size())
		})
		if err != nil {
			return nil, fmt.Errorf("looking into %s: %w", in, err)
		}
	}
	if len(out) == 0 {
		return nil, errors.New("there is no file in what was named")
	}
	return out, nil
}

// Policy is the page's Content-Security-Policy (docs/viewer.md).
const Policy = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self'; " +
	"connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
	"require-trusted-types-for 'script'; trusted-types wiretape"

// Server answers for one page and its files. All of it lies under a path that
// nobody can guess: other people's programs on this machine reach the port too.
type Server struct {
	page  fs.FS
	files []File
	root  string // "/" and the secret and "/"
}

// NewServer makes a server of page for files.
func NewServer(page fs.FS, files []File) *Server {
	var secret [16]byte
	rand.Read(secret[:])
	return &Server{page: page, files: files, root: "/" + hex.EncodeToString(secret[:]) + "/"}
}

// Path is where the page is, with its files open.
func (s *Server) Path() string { return s.root + "?list=" + capture.ListName }

// local says that a request was made to this machine by its own name. A page
// elsewhere whose name was made to lead here asks with another.
func local(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.Trim(host, "[]")
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// ServeHTTP answers GET and HEAD.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", Policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	rest, ours := strings.CutPrefix(r.URL.Path, s.root)
	if !ours || !local(r.Host) {
		http.Error(w, "there is nothing here", http.StatusNotFound)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "only GET and HEAD", http.StatusMethodNotAllowed)
		return
	}
	switch number, isFile := strings.CutPrefix(rest, "files/"); {
	case isFile:
		s.file(w, r, number)
	case rest == capture.ListName:
		s.list(w)
	case rest == "":
		s.asset(w, r, "index.html")
	default:
		s.asset(w, r, rest)
	}
}

// writeList writes the list that the page opens (docs/viewer.md). url gives where
// file i is, from the list.
func writeList(w io.Writer, files []File, url func(i int) string) error {
	type entry struct {
		Path string `json:"path"`
		URL  string `json:"url"`
		Size int64  `json:"size"`
	}
	list := struct {
		Files []entry `json:"files"`
	}{Files: []entry{}}
	for i, f := range files {
		list.Files = append(list.Files, entry{f.Path, url(i), f.Size})
	}
	return jsontext.Write(w, list, "")
}

// WriteList writes the list of the files of a folder, for a file server that has
// it: the URLs are from the folder itself. It lies there as capture.ListName, and
// does not name itself.
func WriteList(w io.Writer, files []File, folder string) error {
	files = slices.DeleteFunc(slices.Clone(files), func(f File) bool { return filepath.Base(f.Name) == capture.ListName })
	return writeList(w, files, func(i int) string {
		name, err := filepath.Rel(folder, files[i].Name)
		if err != nil {
			name = filepath.Base(files[i].Name)
		}
		// "./" keeps a colon in a name from being a scheme.
		return "./" + (&url.URL{Path: filepath.ToSlash(name)}).EscapedPath()
	})
}

func (s *Server) list(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	// The page hears of a connection that broke by itself.
	_ = writeList(w, s.files, func(i int) string { return "files/" + strconv.Itoa(i) })
}

// file serves one of the listed files by ranges. Its tag changes with it, so
// that the page notices.
func (s *Server) file(w http.ResponseWriter, r *http.Request, number string) {
	i, err := strconv.Atoi(number)
	if err != nil || i < 0 || i >= len(s.files) {
		http.NotFound(w, r)
		return
	}
	f, err := os.Open(s.files[i].Name)
	if err != nil {
		http.Error(w, "the file can't be opened any more", http.StatusNotFound)
		return
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() {
		http.Error(w, "it is no file any more", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("ETag", `"`+strconv.FormatInt(st.Size(), 36)+"-"+strconv.FormatInt(st.ModTime().UnixNano(), 36)+`"`)
	http.ServeContent(w, r, "", st.ModTime(), f)
}

var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
	".wasm": "application/wasm", ".svg": "image/svg+xml", ".txt": "text/plain; charset=utf-8",
}

func (s *Server) asset(w http.ResponseWriter, r *http.Request, name string) {
	b, err := fs.ReadFile(s.page, name)
	typ := contentTypes[path.Ext(name)]
	if err != nil || typ == "" {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", typ)
	http.ServeContent(w, r, "", time.Time{}, strings.NewReader(string(b)))
}
