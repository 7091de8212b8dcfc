package unfinished

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// tree is every file under a folder with its text, folders with "/".
func tree(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		if d.Type()&fs.ModeSymlink != 0 {
			to, err := os.Readlink(path)
			b.WriteString(rel + " -> " + to + "\n")
			return err
		}
		if d.IsDir() {
			b.WriteString(rel + "/\n")
			return nil
		}
		text, err := os.ReadFile(path)
		b.WriteString(rel + " " + string(text) + "\n")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// What is somebody else's stays, whatever it is and wherever it lies.
func TestForeignStays(t *testing.T) {
	for name, make := range map[string]func(dir string){
		"folder":         func(d string) { write(t, d+"/out.unfinished/precious", "mine") },
		"empty folder":   func(d string) { os.Mkdir(d+"/out.unfinished", 0o700) },
		"file":           func(d string) { write(t, d+"/out.unfinished", "mine") },
		"empty file":     func(d string) { write(t, d+"/out.unfinished", "") },
		"its lock":       func(d string) { write(t, d+"/out.unfinished.lock", "mine") },
		"a lock folder":  func(d string) { os.Mkdir(d+"/out.unfinished.lock", 0o700) },
		"an empty lock":  func(d string) { write(t, d+"/out.unfinished.lock", ""); write(t, d+"/out.unfinished/x", "") },
		"folder, marked": func(d string) { write(t, d+"/out.unfinished/x", ""); write(t, d+"/out.unfinished.lock", markText) },
		"symlink": func(d string) {
			write(t, d+"/elsewhere/precious", "mine")
			write(t, d+"/elsewhere/"+markName, markText)
			os.Symlink("elsewhere", d+"/out.unfinished")
		},
		"symlink as the mark": func(d string) {
			write(t, d+"/out.unfinished/precious", "mine")
			write(t, d+"/mark", markText)
			os.Symlink("../mark", d+"/out.unfinished/"+markName)
		},
		"half a mark, no lock": func(d string) { write(t, d+"/out.unfinished/"+markName, markText[:9]) },
		"another mark": func(d string) {
			write(t, d+"/out.unfinished/precious", "mine")
			write(t, d+"/out.unfinished/"+markName, strings.ToUpper(markText))
		},
	} {
		dir := t.TempDir()
		make(dir)
		before := tree(t, dir)
		var foreign *ForeignError
		if u, err := Start(dir + "/out"); !errors.As(err, &foreign) {
			t.Errorf("%s: %v, %v", name, u, err)
		}
		if err := Sweep(dir + "/out"); !errors.As(err, &foreign) {
			t.Errorf("%s, sweep: %v", name, err)
		}
		want := before
		if name == "folder, marked" {
			want = strings.ReplaceAll(before, "out.unfinished.lock "+markText+"\n", "")
		}
		if after := tree(t, dir); after != want {
			t.Errorf("%s:\n%swas\n%s", name, after, before)
		}
	}
}

// A run may be stopped between any two steps: the next one works unaided, and
// leaves nothing of it.
func TestStoppedAnywhere(t *testing.T) {
	for name, make := range map[string]func(dir string){
		"empty lock":            func(d string) { write(t, d+"/out.unfinished.lock", "") },
		"lock":                  func(d string) { write(t, d+"/out.unfinished.lock", markText) },
		"folder without a mark": func(d string) { write(t, d+"/out.unfinished.lock", markText); os.Mkdir(d+"/out.unfinished", 0o700) },
		"an empty mark": func(d string) {
			write(t, d+"/out.unfinished.lock", markText)
			write(t, d+"/out.unfinished/"+markName, "")
		},
		"half a mark": func(d string) {
			write(t, d+"/out.unfinished.lock", markText)
			write(t, d+"/out.unfinished/"+markName, markText[:9])
		},
		"marked": func(d string) { write(t, d+"/out.unfinished/"+markName, markText) },
		"half full": func(d string) {
			write(t, d+"/out.unfinished/"+markName, markText)
			write(t, d+"/out.unfinished/a/b", "half")
		},
		"half removed, lock gone": func(d string) {
			write(t, d+"/out.unfinished/"+markName, markText)
			os.Mkdir(d+"/out.unfinished/a", 0o700)
		},
	} {
		dir := t.TempDir()
		make(dir)
		u, err := Start(dir + "/out")
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		write(t, u.Path()+"/made", "whole")
		if err := u.Publish(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		want := "./\nout/\nout/made whole\n"
		if name == "empty lock" { // whose it is, nobody knows
			want += "out.unfinished.lock \n"
		}
		if got := tree(t, dir); got != want {
			t.Errorf("%s:\n%s", name, got)
		}
		make(dir)
		if err := Sweep(dir + "/out"); err != nil {
			t.Errorf("%s, sweep: %v", name, err)
		}
		if got := tree(t, dir); got != want {
			t.Errorf("%s, swept:\n%s", name, got)
		}
	}
}

func TestTakenBusyAbandoned(t *testing.T) {
	dir := t.TempDir()
	u, err := Start(dir + "/out")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Start(dir + "/out"); !errors.Is(err, ErrBusy) {
		t.Errorf("%v", err)
	}
	write(t, u.Path()+"/a/b", "")
	if err := u.Clear(); err != nil || !marked(filepath.Join(u.Path(), markName)) {
		t.Errorf("cleared: %v, %s", err, tree(t, dir))
	}
	if err := errors.Join(u.Abandon(), u.Abandon()); err != nil {
		t.Error(err)
	}
	if got := tree(t, dir); got != "./\n" {
		t.Errorf("left: %s", got)
	}
	write(t, dir+"/out", "taken")
	if _, err := Start(dir + "/out"); !errors.Is(err, ErrExists) || !errors.Is(err, fs.ErrExist) {
		t.Errorf("%v", err)
	}
	if got := tree(t, dir); got != "./\nout taken\n" {
		t.Errorf("left: %s", got)
	}
}

func TestClash(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/rec/x.cap", "")
	write(t, dir+"/out.unfinished/sub/x.cap", "")
	write(t, dir+"/hard", "h")
	err := errors.Join(os.Link(dir+"/hard", dir+"/h-wal"), os.Symlink("out.unfinished", dir+"/soft"), os.Symlink("rec", dir+"/to-rec"),
		os.Symlink("rec/x.cap", dir+"/soft-file"))
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	for _, c := range []struct {
		in, out string
		clash   bool
	}{
		{"rec", "out2", false},
		{"rec/x.cap", "rec/out", false},
		{"rec", "rec/out", true},
		{"to-rec", "rec/a/b/out", true},
		{".", "out", true},
		{"rec", "to-rec/out", true},
		{"out.unfinished", "out", true},
		{"soft", "out", true},
		{"soft/sub/x.cap", "out", true},
		{dir + "/out.unfinished/sub", "./out", true},
		{"hard", "h", true},
		{"hard", "hard", true},
		{"rec", "to-rec", true},
		{"soft-file", "rec/x.cap", true},
		{"missing", "out", false},
		{"out.quarantine/x", "out", true},
		{"out.rebuild", "out", true},
		{"outer", "out", false},
	} {
		var clash *ClashError
		if err := Clash([]string{"nowhere/none", c.in}, c.out); errors.As(err, &clash) != c.clash || c.clash && clash.Input != c.in {
			t.Errorf("%s and %s: %v", c.in, c.out, err)
		}
	}
}
