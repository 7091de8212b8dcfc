package archive

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strings"
)

// Source is one row of `sources`.
type Source struct {
	ID                int64
	UUID              string
	Labels, Metadata  map[string]string
	ClockAnchorWallNs int64
	Complete          bool
}

// Document is one revision of `documents`: the report of a rebuild.
type Document struct {
	Kind, Name, Schema string
	// Body is JSON.
	Body          []byte
	CreatedWallNs int64
}

// Finish writes the sources and the document (none on schema 4), makes the
// stage a valid archive, verifies it, and gives it its name, which must be free.
// Nothing is visible under that name before. On an error the unfinished folder
// is left for Abort.
func (s *Stage) Finish(sources iter.Seq2[Source, error], doc *Document) error {
	if err := s.begin(0); err != nil {
		return err
	}
	if sources == nil {
		sources = func(func(Source, error) bool) {}
	}
	for src, err := range sources {
		if err != nil {
			return err
		}
		labels, err := jsonObject(src.Labels)
		if err != nil {
			return err
		}
		metadata, err := jsonObject(src.Metadata)
		if err != nil {
			return err
		}
		complete := int64(0)
		if src.Complete {
			complete = 1
		}
		if _, err := s.db.Change("INSERT INTO sources(id, labels, metadata, complete, clock_anchor_wall_ns, uuid) VALUES (?,?,?,?,?,?)",
			src.ID, labels, metadata, complete, src.ClockAnchorWallNs, src.UUID); err != nil {
			return s.wrap(err)
		}
	}
	if doc != nil && s.opt.Schema != SchemaOld {
		if _, err := s.db.Change("INSERT INTO documents(uuid, kind, name, schema, body, created_wall_ns) VALUES (?,?,?,?,?,?)",
			UUIDFrom([]byte(doc.Kind), []byte(doc.Name), doc.Body), doc.Kind, doc.Name, doc.Schema, string(doc.Body), doc.CreatedWallNs); err != nil {
			return s.wrap(err)
		}
	}
	if err := s.commit(); err != nil {
		return err
	}
	if err := s.db.Run("DETACH work", "PRAGMA incremental_vacuum"); err != nil {
		return s.wrap(err)
	}
	// What is written goes to the disk while it is checked.
	synced := make(chan error, 1)
	go func() { synced <- syncFile(s.tmp) }()
	err := s.verify()
	if e := <-synced; e != nil {
		err = errors.Join(err, fmt.Errorf("syncing the archive: %w", e))
	}
	if err != nil {
		return err
	}
	err = s.db.Run(pragma("application_id", ApplicationID), pragma("user_version", s.opt.Schema),
		"PRAGMA locking_mode=NORMAL", "PRAGMA synchronous=FULL", "PRAGMA journal_mode=WAL")
	err = errors.Join(err, s.db.Close())
	s.db = nil
	if err != nil {
		return s.wrap(err)
	}
	if err := publish(s.tmp, s.path); err != nil {
		return err
	}
	return s.folder.Abandon()
}

// verify is what the crate's verify checks of the database itself; the segments
// and their order are this package's own work and are checked as they are read.
func (s *Stage) verify() error {
	faults, err := s.db.Faults()
	if err != nil {
		return s.wrap(err)
	}
	if len(faults) > 0 {
		return fmt.Errorf("the archive %s does not verify: %s", s.tmp, strings.Join(faults, "; "))
	}
	return nil
}

// publish gives a finished file its name: synced, never over another file.
func publish(tmp, path string) error {
	if err := syncFile(tmp); err != nil {
		return fmt.Errorf("syncing the archive: %w", err)
	}
	// A link fails where the name is taken; a file system without links gets a
	// rename after a look.
	err := os.Link(tmp, path)
	switch {
	case err == nil:
		err = os.Remove(tmp)
	case errors.Is(err, os.ErrExist):
		return fmt.Errorf("naming the archive: %w", err)
	default:
		if _, e := os.Lstat(path); e == nil {
			return fmt.Errorf("naming the archive: %s: %w", path, os.ErrExist)
		}
		err = os.Rename(tmp, path)
	}
	if err != nil {
		return fmt.Errorf("naming the archive: %w", err)
	}
	if err := syncFile(filepath.Dir(path)); err != nil {
		return fmt.Errorf("syncing the folder of the archive: %w", err)
	}
	return nil
}

func syncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// jsonObject is a JSON object of strings with its keys in order.
func jsonObject(m map[string]string) (string, error) {
	if m == nil {
		m = map[string]string{}
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(m); err != nil {
		return "", err
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

// UUIDFrom derives a uuid (RFC 9562, version 8) from what it names, so that the
// same input gives the same one.
func UUIDFrom(parts ...[]byte) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:", len(p))
		h.Write(p)
	}
	var u [16]byte
	copy(u[:], h.Sum(nil))
	u[6] = u[6]&0x0f | 0x80
	u[8] = u[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[0:4], u[4:6], u[6:8], u[8:10], u[10:])
}
