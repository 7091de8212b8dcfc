// Package docs_test checks what the code says of the documents.
package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

// TestNamedDocumentsExist: a comment or a message that sends somebody to a
// document names one that is in this repository.
func TestNamedDocumentsExist(t *testing.T) {
	named := regexp.MustCompile(`[A-Za-z][A-Za-z0-9_/-]*\.md\b`)
	exts := []string{".go", ".rs", ".js", ".mjs", ".sh", ".html", ".txtar", ".toml"}
	have := map[string]bool{}
	uses := map[string]string{}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{".git", "node_modules", "target", "dist"}, d.Name()):
			return filepath.SkipDir
		case filepath.Ext(path) == ".md":
			have[d.Name()] = true
		case slices.Contains(exts, filepath.Ext(path)) && d.Type().IsRegular():
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, name := range named.FindAllString(string(b), -1) {
				uses[filepath.Base(name)] = path
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(have) < 5 || len(uses) < 5 {
		t.Fatalf("%d documents, %d named: the repository was not found", len(have), len(uses))
	}
	for name, path := range uses {
		if !have[name] {
			t.Errorf("%s names %s, which is not here", path, name)
		}
	}
}
