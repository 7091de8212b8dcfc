package capture

// This file gathers what is known of the files of a connection that are not
// here: what the journals say of files that were sealed, and sidecars whose
// bytes are gone. So a missing stretch can be proved to be somewhere else.

import (
	"cmp"
	"math"
	"path/filepath"
	"slices"
)

// maxKnown bounds the files that Known gives of all connections.
const maxKnown = 1 << 20

// Known is what journals and sidecars say of a connection, whatever of it is
// here.
type Known struct {
	// Files that were sealed, in order of their offsets.
	Files []KnownFile
	// End is how many bytes the connection had in all when it ended, -1 where
	// nobody said so.
	End int64
}

// KnownFile is a file's place in its connection and its hash.
type KnownFile struct {
	Number, Start, Length int64
	SHA256                string
}

// Known tells what is known of the connections for which want is true. Where
// two journals say different things of a file, nothing is known of it.
func (s *Set) Known(want func(id string) bool) map[string]*Known {
	all := map[string]map[int64]KnownFile{}
	ends := map[string]int64{}
	total := 0
	add := func(m map[string]map[int64]KnownFile, id string, f KnownFile) {
		if f.Start < 0 || f.Length < 0 || f.Start > math.MaxInt64-f.Length || f.SHA256 == "" || total >= maxKnown {
			return
		}
		if m[id] == nil {
			m[id] = map[int64]KnownFile{}
		}
		if _, ok := m[id][f.Number]; !ok {
			total++
		}
		m[id][f.Number] = f
	}
	merge := func(m map[string]map[int64]KnownFile) {
		for id, files := range m {
			for n, f := range files {
				if old, ok := all[id][n]; ok && old != f {
					f.SHA256 = "" // two that differ prove nothing
				}
				if all[id] == nil {
					all[id] = map[int64]KnownFile{}
				}
				all[id][n] = f
			}
		}
	}
	for _, dir := range s.folders {
		here := map[string]map[int64]KnownFile{}
		skipped := 0
		// A journal that can't be read proves nothing; reading the inputs
		// reported it.
		_ = eachEntry(s.fs, dir, func(e Entry) {
			switch e.Event {
			case EventSeal, EventRecover, EventArrive:
				if n := ParseName(e.File); n.Connection != "" && want(n.Connection) {
					// A later line of one journal takes back an earlier one.
					add(here, n.Connection, KnownFile{n.Number, e.Offset, e.Bytes, e.SHA256})
				}
			case EventDisconnect:
				if want(e.Connection) && e.Bytes >= 0 {
					ends[e.Connection] = max(ends[e.Connection], e.Bytes)
				}
			}
		}, &skipped)
		merge(here)
	}
	in := &inputs{opt: InputOptions{FS: s.fs}}
	for id, numbers := range s.orphans {
		if !want(id) {
			continue
		}
		for n, dirs := range numbers {
			for _, dir := range dirs {
				name := stem(id, n)
				side, _ := in.readSidecar(id, &File{Number: n, Name: name + extBytes}, filepath.Join(dir, name+extSidecar))
				if side == nil || side.Open {
					continue
				}
				one := map[string]map[int64]KnownFile{}
				add(one, id, KnownFile{n, side.Start, side.Length, side.SHA256})
				merge(one)
				if side.Transport != nil {
					ends[id] = max(ends[id], side.End())
				}
			}
		}
	}
	known := map[string]*Known{}
	for _, c := range s.Connections {
		if want(c.ID) {
			one := map[string]map[int64]KnownFile{}
			for i, f := range c.Files {
				if f.Sidecar != nil && !f.Sidecar.Open && f.Start == f.Sidecar.Start {
					// Its sidecar has the hash of the file before as well, which may
					// be all that there was of a hole.
					before := KnownFile{Number: f.Number - 1, SHA256: f.Sidecar.PreviousSHA256}
					alone := i == 0 && f.Number == 2
					if i > 0 {
						alone, before.Start = c.Files[i-1].Number == f.Number-2, c.Files[i-1].End()
					}
					if before.Length = f.Start - before.Start; alone {
						add(one, c.ID, before)
					}
					add(one, c.ID, KnownFile{f.Number, f.Start, f.Sidecar.Length, f.Sidecar.SHA256})
				}
				if f.Sidecar != nil && f.Sidecar.Transport != nil {
					ends[c.ID] = max(ends[c.ID], f.Sidecar.End())
				}
			}
			merge(one)
		}
	}
	for id, files := range all {
		k := &Known{End: -1}
		for _, f := range files {
			if f.SHA256 != "" {
				k.Files = append(k.Files, f)
			}
		}
		slices.SortFunc(k.Files, func(a, b KnownFile) int { return cmp.Compare(a.Start, b.Start) })
		known[id] = k
	}
	for id, end := range ends {
		if known[id] == nil {
			known[id] = &Known{}
		}
		known[id].End = end
	}
	return known
}

// Covering gives the files that lie over the bytes from from to to without a
// hole between them, nil when these are not all known.
func (k *Known) Covering(from, to int64) []KnownFile {
	if k == nil {
		return nil
	}
	var files []KnownFile
	at := from
	for _, f := range k.Files {
		end := f.Start + f.Length
		if end <= at || at >= to {
			continue
		}
		if f.Start > at || len(files) > 0 && f.Start != at {
			return nil
		}
		files, at = append(files, f), end
	}
	if at < to {
		return nil
	}
	return files
}
