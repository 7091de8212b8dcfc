package dendro

import (
	"bytes"

	"wiretape/wire"
)

// The kinds of findings that only dendro has.
const (
	// KindGap: seq jumped; intervals were not received (rule 2).
	KindGap = "gap"
	// KindRowsSkipped: a Rows frame whose index state does not let its rows be
	// attributed (rule 3).
	KindRowsSkipped = "rows-skipped"
	// KindUnknownOrdinal: a frame for an ordinal that no Handshake introduced,
	// or whose Handshake was refused or lost.
	KindUnknownOrdinal = "unknown-ordinal"
	// KindSegmentNoRows: a Segment that claims 0 rows (rule 4).
	KindSegmentNoRows = "segment-no-rows"
	// KindSegmentSpan: a Segment whose first_ts is above its last_ts (rule 4).
	KindSegmentSpan = "segment-inverted-span"
	// KindUUID: a uuid that is empty, upper-case or malformed.
	KindUUID = "uuid-malformed"
	// KindMapOrder: a map whose keys do not ascend.
	KindMapOrder = "map-order"
	// KindMapRepeatedKey: a map that has a key twice; the last value counts.
	KindMapRepeatedKey = "map-repeated-key"
	// KindTooManySources: a Handshake above MaxSources.
	KindTooManySources = "too-many-sources"
)

// frameFinding is a finding about a whole frame.
func frameFinding(u wire.Unit, kind, field, want, got, message, cost string) wire.Finding {
	return wire.Finding{Kind: kind, Offset: u.Offset, Length: u.Size, Field: field,
		Want: want, Got: got, Message: message, Cost: cost}
}

// labelLimit is how many bytes of a label a message shows.
const labelLimit = 64

// named is how a message calls a source.
func named(ordinal uint32, label string) string {
	n := "source " + wire.Itoa(int64(ordinal))
	if label != "" {
		n += " (" + wire.SafeText(label, labelLimit) + ")"
	}
	return n
}

func gapFinding(u wire.Unit, who string, last, seq, missing uint64) wire.Finding {
	n := intervals(missing)
	return frameFinding(u, KindGap, "seq", wire.Utoa(last+1), wire.Utoa(seq),
		who+": seq "+wire.Utoa(seq)+" follows "+wire.Utoa(last)+": "+n+" not received here",
		"the rows of "+n+" are not in this connection, unless a segment brings them")
}

func intervals(n uint64) string {
	if n == 1 {
		return "1 interval"
	}
	return wire.Utoa(n) + " intervals"
}

func skippedFinding(u wire.Unit, who string, r *Rows, s State, why Disposition) wire.Finding {
	m := who + ": rows built against index state " + r.IndexState.text()
	want := s.text()
	if why == SkippedNoFull {
		want = "a Full index before"
		m += ", and no Full index came yet"
	} else {
		m += ", but the index here is at " + want
	}
	cost := ""
	switch r.Count {
	case 0:
	case 1:
		cost = "1 row is skipped: it can't be attributed"
	default:
		cost = wire.Itoa(int64(r.Count)) + " rows are skipped: they can't be attributed"
	}
	return frameFinding(u, KindRowsSkipped, "index_state", want, r.IndexState.text(), m, cost)
}

// text is a state as people compare it: two numbers in hex.
func (s State) text() string {
	return "(" + hex64(s[0]) + ", " + hex64(s[1]) + ")"
}

func hex64(n uint64) string {
	if n == 0 {
		return "0"
	}
	b := [8]byte{byte(n >> 56), byte(n >> 48), byte(n >> 40), byte(n >> 32), byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}
	return string(wire.AppendHex(nil, b[:]))
}

func unknownFinding(u wire.Unit, ordinal uint32) wire.Finding {
	return frameFinding(u, KindUnknownOrdinal, "source", "an ordinal with a Handshake", wire.Itoa(int64(ordinal)),
		KindName(u.Kind)+" frame for source "+wire.Itoa(int64(ordinal))+", which no good Handshake introduced",
		"the frame is set aside: it can't be credited to a source")
}

func unknownKindFinding(u wire.Unit) wire.Finding {
	n := wire.Itoa(int64(u.Kind))
	return frameFinding(u, wire.KindUnknownKind, "kind", "1 to 6", n,
		"a frame of kind "+n+", which protocol "+wire.Itoa(Version)+" does not have; stepped over", "")
}

// zeroLength is the fault of a frame whose len is 0, nil for another.
func zeroLength(u wire.Unit) *wire.Fault {
	if u.Size > LenSize {
		return nil
	}
	return &wire.Fault{Finding: wire.Finding{Kind: wire.KindMalformed, Offset: u.Offset, Length: LenSize,
		Field: "len", Want: "at least 1", Got: "0",
		Message: "frame at " + wire.Itoa(u.Offset) + ": len is 0, but it counts the kind byte",
		Cost:    "the frame is set aside"}}
}

// identityFindings reports what is lenient about a Handshake.
func (h *Handshake) identityFindings(u wire.Unit, found []wire.Finding) []wire.Finding {
	if h.HasUUID && !UUIDWellFormed(h.UUID) {
		got := wire.SafeText(string(h.UUID), labelLimit)
		f := wire.Finding{Kind: KindUUID, Offset: u.Offset + frameHead + 4, Length: 5 + int64(len(h.UUID)),
			Field: "uuid", Want: "8-4-4-4-12 lower-case hex", Got: got,
			Message: "source " + wire.Itoa(int64(h.Source)) + " has the malformed uuid “" + got + "”; it is taken as it is"}
		if len(h.UUID) == 0 {
			f.Message = "source " + wire.Itoa(int64(h.Source)) + " has an empty uuid; it is taken as it is"
		}
		found = append(found, f)
	}
	found = h.Labels.findings("labels", found)
	return h.Metadata.findings("metadata", found)
}

// maxOrderSet is how many pairs of a map out of order are searched for a
// repeated key that is not beside the first.
const maxOrderSet = 1 << 16

// findings reports the first key out of order and the first repeated one.
func (m Map) findings(name string, found []wire.Finding) []wire.Finding {
	var prev []byte
	at, i := m.at+4, 0
	ordered, single := true, true
	var seen map[string]bool
	note := func(kind string, k []byte, why, cost string) {
		key := wire.SafeText(string(k), labelLimit)
		field := name + "[" + wire.Itoa(int64(i)) + "].key"
		found = append(found, wire.Finding{Kind: kind, Offset: at, Length: 4 + int64(len(k)), Field: field,
			Want: "keys that ascend, each once", Got: key,
			Message: "the key “" + key + "” in " + name + " " + why, Cost: cost})
	}
	for k, v := range m.All() {
		if i > 0 {
			cmp := bytes.Compare(prev, k)
			repeated := cmp == 0
			if cmp > 0 && ordered {
				ordered = false
				note(KindMapOrder, k, "is not in key order; it is taken as it is", "")
				if m.n <= maxOrderSet {
					seen = m.before(i)
				}
			}
			if seen != nil {
				repeated = repeated || seen[string(k)]
				seen[string(k)] = true
			}
			if repeated && single {
				single = false
				note(KindMapRepeatedKey, k, "is there twice", "the last value counts, the ones before it are not used")
			}
			if !ordered && !single {
				break
			}
		}
		prev = k
		at += 8 + int64(len(k)) + int64(len(v))
		i++
	}
	return found
}

// before is the set of the first n keys.
func (m Map) before(n int) map[string]bool {
	seen := make(map[string]bool, m.n)
	for k := range m.All() {
		if n == 0 {
			break
		}
		seen[string(k)] = true
		n--
	}
	return seen
}
