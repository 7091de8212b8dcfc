package view

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

func get(t *testing.T, s *Server, path, host string, header map[string]string) *http.Response {
	t.Helper()
	r := httptest.NewRequest("GET", "http://"+host+path, nil)
	for k, v := range header {
		r.Header.Set(k, v)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Result()
}

func body(t *testing.T, r *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func newServer(t *testing.T) (*Server, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "rec")
	if err := os.MkdirAll(filepath.Join(dir, "deep"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"a.cap": "0123456789", "deep/b.cap": "bytes"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	files, err := Files([]string{dir, filepath.Join(dir, "a.cap")})
	if err != nil {
		t.Fatal(err)
	}
	page := fstest.MapFS{"index.html": {Data: []byte("<!doctype html>page")}, "wiretape.wasm": {Data: []byte("\x00asm")}, "README": {Data: []byte("no")}}
	return NewServer(page, files), dir
}

func TestServesPageAndFiles(t *testing.T) {
	s, dir := newServer(t)
	const host = "127.0.0.1:99"
	r := get(t, s, s.Path(), host, nil)
	if r.StatusCode != 200 || !strings.HasSuffix(body(t, r), "page") || r.Header.Get("Content-Security-Policy") != Policy {
		t.Fatal(r.Status, r.Header)
	}
	if r := get(t, s, s.root+"wiretape.wasm", host, nil); r.Header.Get("Content-Type") != "application/wasm" {
		t.Fatal(r.Header)
	}
	var list struct{ Files []struct{ Path, URL string } }
	if err := json.Unmarshal([]byte(body(t, get(t, s, s.root+"list.json", host, nil))), &list); err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, f := range list.Files {
		paths = append(paths, f.Path)
	}
	if got := strings.Join(paths, " "); got != "rec/a.cap rec/deep/b.cap a.cap" {
		t.Fatal(got)
	}
	first := s.root + list.Files[0].URL
	r = get(t, s, first, host, map[string]string{"Range": "bytes=2-4"})
	tag := r.Header.Get("ETag")
	if r.StatusCode != 206 || body(t, r) != "234" || r.Header.Get("Content-Range") != "bytes 2-4/10" || tag == "" {
		t.Fatal(r.Status, r.Header)
	}
	if err := os.WriteFile(filepath.Join(dir, "a.cap"), []byte("another text"), 0o644); err != nil {
		t.Fatal(err)
	}
	r = get(t, s, first, host, map[string]string{"Range": "bytes=2-4", "If-Range": tag})
	if r.StatusCode != 200 {
		t.Fatal("a changed file was not noticed", r.Status)
	}
}

func TestRefusesOthers(t *testing.T) {
	s, _ := newServer(t)
	for _, c := range []struct{ path, host string }{
		{"/", "127.0.0.1:99"},
		{"/list.json", "127.0.0.1:99"},
		{"/00000000000000000000000000000000/files/0", "localhost"},
		{s.root + "list.json", "attacker.example"},
		{s.root + "list.json", "attacker.example:99"},
		{s.root + "files/3", "localhost"},
		{s.root + "files/-1", "localhost"},
		{s.root + "files/0/../1", "localhost"},
		{s.root + "README", "localhost"},
		{s.root + "../view.go", "localhost"},
	} {
		if r := get(t, s, c.path, c.host, nil); r.StatusCode != 404 {
			t.Errorf("%s at %s: %s", c.path, c.host, r.Status)
		}
	}
	for _, host := range []string{"localhost:1", "127.0.0.1", "[::1]:8080", "127.8.9.1:2"} {
		if r := get(t, s, s.root+"list.json", host, nil); r.StatusCode != 200 {
			t.Errorf("%s: %s", host, r.Status)
		}
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest("POST", "http://localhost"+s.root, nil))
	if w.Code != http.StatusMethodNotAllowed {
		t.Error(w.Code)
	}
}

func TestFilesSaysWhatItCantRead(t *testing.T) {
	if _, err := Files([]string{filepath.Join(t.TempDir(), "absent")}); err == nil {
		t.Error("an absent input was taken")
	}
	if _, err := Files([]string{t.TempDir()}); err == nil {
		t.Error("an empty folder was taken")
	}
	if _, err := Files([]string{os.DevNull}); err == nil {
		t.Error("a device was taken")
	}
}
