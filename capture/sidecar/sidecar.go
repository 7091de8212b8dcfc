// Package sidecar is the two files that lie beside a capture file: the JSON
// sidecar, which says what the bytes are, and the arrival index, which says
// when they came. docs/capture-format.md is the contract.
//
// Both are a convenience: what they say is a claim about the bytes, to be held
// against them. Parsers here take hostile input within the limits below.
package sidecar

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"wiretape/wire"
)

const (
	// Format and Version are the first two members of every sidecar.
	Format  = "wiretape-sidecar"
	Version = 1
	// MaxSize is the largest sidecar that is read, in bytes.
	MaxSize = 16 << 20
	// DefaultContextLimit is how many bytes of context a sidecar holds unless
	// told otherwise.
	DefaultContextLimit = 4 << 20
	// MaxFindings is how many findings a sidecar lists; it counts the rest.
	MaxFindings = 1000
	// MaxKinds is how many kinds of frames a sidecar counts by themselves.
	MaxKinds = 256
	// maxStream is the largest stream offset: what JSON numbers hold exactly.
	maxStream = 1<<53 - 1
)

// The reasons for which a file was closed: Sidecar.Closed.
const (
	ClosedSize    = "size"
	ClosedTime    = "time"
	ClosedEnd     = "end-of-stream"
	ClosedSignal  = "signal"
	ClosedError   = "error"
	ClosedRequest = "request"
	// ClosedRecovered: the recorder never closed it; recovery did.
	ClosedRecovered = "recovered"
	// ClosedUnknown: the sidecar was lost and made anew from the bytes.
	ClosedUnknown = "unknown"
)

// How the framing of a file is known: Sidecar.Framing.
const (
	// FramingFrames: the protocol is known and its frames were followed.
	FramingFrames = "frames"
	// FramingUnknown: no protocol is known, the file is cut by bytes.
	FramingUnknown = "unknown"
	// FramingLost: the frames were lost on the way, from there on the file is
	// cut by bytes.
	FramingLost = "lost"
)

// The verdicts of a transport: Verdict.Kind.
const (
	// TransportClean: the peer ended the stream in a way that the transport
	// witnesses: a TCP FIN, a TLS close_notify, the whole of an HTTP body.
	TransportClean = "clean"
	// TransportUnwitnessed: the stream ended without an error where the
	// transport can't tell an end from a cut: a close-delimited HTTP body, a
	// pipe.
	TransportUnwitnessed = "unwitnessed"
	// TransportCut: the stream ended by a fault of the transport: a reset, a
	// body shorter than declared, a TLS stream without its end.
	TransportCut = "cut"
	// TransportIdle: nothing came for longer than the limit.
	TransportIdle = "idle"
	// TransportStopped: the recorder was told to stop.
	TransportStopped = "stopped"
	// TransportFailed: the recorder could not go on, such as for a full disk.
	TransportFailed = "failed"
	// TransportUnknown: the recorder died, nobody saw the end.
	TransportUnknown = "unknown"
)

// Verdict is how a connection ended as far as its transport tells.
type Verdict struct {
	Kind string `json:"verdict"`
	// Detail is one line for people, such as the error.
	Detail string `json:"detail,omitempty"`
}

// Instant is one moment by two clocks: Wall in nanoseconds since 1970 UTC, as
// the machine's clock said, and Mono in nanoseconds since an arbitrary start
// that is the same for one connection.
type Instant struct {
	Wall int64 `json:"wall_ns,string"`
	Mono int64 `json:"monotonic_ns,string"`
	// Time is Wall for people, RFC 3339 in UTC. Readers use Wall.
	Time string `json:"time"`
}

// At makes an Instant.
func At(wall, mono int64) *Instant {
	return &Instant{Wall: wall, Mono: mono, Time: time.Unix(0, wall).UTC().Format(time.RFC3339Nano)}
}

// KindCount is how many frames of a kind lie whole in a file.
type KindCount struct {
	Kind  uint32 `json:"kind"`
	Name  string `json:"name,omitempty"`
	Count int64  `json:"count"`
}

// Sidecar describes one capture file. Offsets are in the connection, lengths
// in bytes; both are below 2^53 and plain JSON numbers. Times in nanoseconds
// and the numbers of a context are decimal strings, since JavaScript's numbers
// would not hold them.
type Sidecar struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	// Tool is the name and version of the program that wrote this.
	Tool string `json:"tool"`
	// Connection is the connection's id, Number the file's in it, from 1.
	Connection string `json:"connection"`
	Number     int64  `json:"file"`
	// Open is true in the sidecar of a file that is being written: it holds
	// what is known at its first byte, and no length or hash.
	Open bool `json:"open,omitempty"`
	// Protocol is the wire name, "raw" when none is known, and in an open
	// sidecar "auto" when it is to be found out. ProtocolVersion is the
	// protocol's own number, 0 when unknown.
	Protocol        string `json:"protocol"`
	ProtocolVersion uint32 `json:"protocol_version"`
	Direction       string `json:"direction"`
	// Pair is the connection that holds the other direction, "" for none.
	Pair     string `json:"pair"`
	Endpoint string `json:"endpoint"`
	// Start is the offset in the connection of the file's first byte.
	Start  int64  `json:"start"`
	Length int64  `json:"length"`
	SHA256 string `json:"sha256"`
	// PreviousSHA256 is that of the file before, "" for the first.
	PreviousSHA256 string `json:"previous_sha256"`
	// Frames that lie whole in the file, by kind, and how many more there are of
	// kinds beyond the first MaxKinds.
	Frames      []KindCount `json:"frames"`
	OtherFrames int64       `json:"frames_of_other_kinds,omitempty"`
	// FirstArrival and LastArrival are null when not known or there was none.
	FirstArrival *Instant `json:"first_arrival"`
	LastArrival  *Instant `json:"last_arrival"`
	Framing      string   `json:"framing"`
	// StartsAtBoundary and EndsAtBoundary say whether a frame begins with the
	// first byte and one ends with the last.
	StartsAtBoundary bool `json:"starts_at_boundary"`
	EndsAtBoundary   bool `json:"ends_at_boundary"`
	// Boundary is the offset in the connection up to which the file holds
	// whole frames: its end when EndsAtBoundary.
	Boundary int64     `json:"boundary"`
	Findings []Finding `json:"findings"`
	// FindingsOmitted is how many more there were than are listed.
	FindingsOmitted int64  `json:"findings_omitted,omitempty"`
	Closed          string `json:"closed"`
	ClosedDetail    string `json:"closed_detail,omitempty"`
	// Transport is set in the last file of a connection only.
	Transport *Verdict `json:"transport"`
	// Recovery is set in a file that its recorder did not close.
	Recovery *Recovery `json:"recovery,omitempty"`
	// Context is what a reader needs to decode the file alone, null when the
	// file starts the connection or no protocol is known.
	Context *Context `json:"context"`
}

// Recovery is what was done to a file that its recorder did not close.
type Recovery struct {
	// Kept is how many bytes the file had and has.
	Kept int64 `json:"kept"`
	// Whole is how many of them are whole frames; for unknown framing all that
	// come before trailing zeros.
	Whole int64 `json:"whole"`
	// Tail says what the rest is: "", "cut", "zero-filled-tail" or
	// "framing-lost".
	Tail string `json:"tail"`
	// Proven is how many of them, from the first on, the arrival index proves
	// to be what came. Behind it nothing tells.
	Proven int64 `json:"proven"`
}

// Finding is a wire.Finding in JSON, as wire.Finding.AppendJSON writes it.
type Finding struct {
	Kind       string `json:"kind"`
	Connection string `json:"connection"`
	File       string `json:"file"`
	Offset     int64  `json:"offset"`
	At         int64  `json:"at,omitempty"`
	Length     int64  `json:"length,omitempty"`
	Field      string `json:"field,omitempty"`
	Want       string `json:"expected,omitempty"`
	Got        string `json:"found,omitempty"`
	Message    string `json:"message"`
	Cost       string `json:"cost,omitempty"`
}

// FromWire makes a Finding.
func FromWire(f wire.Finding) Finding {
	return Finding{f.Kind, f.Connection, f.File, f.Offset, f.At, f.Length, f.Field, f.Want, f.Got, f.Message, f.Cost}
}

// Wire is the inverse of FromWire.
func (f Finding) Wire() wire.Finding {
	return wire.Finding{Kind: f.Kind, Connection: f.Connection, File: f.File, Offset: f.Offset, At: f.At, Length: f.Length,
		Field: f.Field, Want: f.Want, Got: f.Got, Message: f.Message, Cost: f.Cost}
}

// ErrInvalid is wrapped by every error of Parse, and by those of NewIndex about
// bytes that are no index.
var ErrInvalid = errors.New("invalid")

// Parse reads a sidecar and checks that it is one: the format's name and
// version, names of members that mean one thing, and values that a recorder can
// write. It does not know the bytes. The viewer's page takes and refuses the same
// (viewer/src/worker/sidecar.js; testdata/rules.jsonl is held against both).
func Parse(b []byte) (*Sidecar, error) {
	if len(b) > MaxSize {
		return nil, fmt.Errorf("%w sidecar: %d bytes, the limit is %d", ErrInvalid, len(b), MaxSize)
	}
	var s Sidecar
	d := json.NewDecoder(bytes.NewReader(b))
	if err := d.Decode(&s); err != nil {
		return nil, fmt.Errorf("%w sidecar: %w", ErrInvalid, err)
	}
	end := d.InputOffset()
	if rest := bytes.Trim(b[end:], " \t\r\n"); len(rest) > 0 {
		return nil, fmt.Errorf("%w sidecar: %d bytes behind its end", ErrInvalid, len(rest))
	}
	if err := checkNames(b[:end]); err != nil {
		return nil, fmt.Errorf("%w sidecar: %w", ErrInvalid, err)
	}
	if err := s.check(); err != nil {
		return nil, fmt.Errorf("%w sidecar: %w", ErrInvalid, err)
	}
	return &s, nil
}

// checkNames refuses what readers of JSON understand differently: a member that is
// there twice, and a name that is known but for the case of its letters. b is JSON.
func checkNames(b []byte) error {
	var open []map[string]bool // names so far, nil in a list
	name := false
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '{':
			open, name = append(open, map[string]bool{}), true
		case '[':
			open, name = append(open, nil), false
		case '}', ']':
			open = open[:len(open)-1]
		case ',':
			name = open[len(open)-1] != nil
		case ':':
			name = false
		case '"':
			from := i + 1
			for i = from; b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
			if !name {
				continue
			}
			text := string(b[from:i])
			if text == "" || strings.Trim(text, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" {
				return fmt.Errorf("%s is no member's name", wire.SafeText(strconv.Quote(text), 60))
			}
			names := open[len(open)-1]
			if names[text] {
				return fmt.Errorf("%s is there twice", wire.SafeText(text, 60))
			}
			names[text] = true
		}
	}
	return nil
}

func (s *Sidecar) check() error {
	switch {
	case s.Format != Format:
		return errors.New("its format is not " + Format)
	case s.Version != Version:
		return fmt.Errorf("its version is %d, known is %d", s.Version, Version)
	case s.Connection == "":
		return errors.New("no connection")
	case s.Number < 1:
		return fmt.Errorf("file number %d", s.Number)
	case s.Start < 0 || s.Length < 0 || s.Start > maxStream || s.Length > maxStream-s.Start:
		return fmt.Errorf("start %d and length %d", s.Start, s.Length)
	case s.Protocol == "":
		return errors.New("no protocol")
	case s.Framing != FramingFrames && s.Framing != FramingUnknown && s.Framing != FramingLost:
		return errors.New("unknown framing")
	}
	if s.Open {
		return nil
	}
	if len(s.SHA256) != 64 || strings.Trim(s.SHA256, "0123456789abcdef") != "" {
		return errors.New("no SHA-256")
	}
	if s.Boundary < s.Start || s.Boundary > s.End() {
		return fmt.Errorf("boundary %d outside of %d to %d", s.Boundary, s.Start, s.End())
	}
	return nil
}

// End is the offset in the connection behind the file's last byte.
func (s *Sidecar) End() int64 { return s.Start + s.Length }

// Append appends the sidecar as indented JSON with a newline at its end. Text
// is escaped so that it is harmless in a terminal and in HTML. A sidecar that
// would be larger than MaxSize goes without its context and findings, and says
// so.
func (s *Sidecar) Append(dst []byte) ([]byte, error) {
	out, err := s.append(dst)
	if err != nil || len(out)-len(dst) <= MaxSize {
		return out, err
	}
	if s.Context != nil {
		s.Context = &Context{Protocol: s.Context.Protocol, Version: s.Context.Version, Entries: []contextEntry{},
			Omitted: []string{"everything: the sidecar would have been larger than its limit"}}
	}
	s.FindingsOmitted += int64(len(s.Findings))
	s.Findings = nil
	return s.append(dst)
}

func (s *Sidecar) append(dst []byte) ([]byte, error) {
	if s.Frames == nil {
		s.Frames = []KindCount{}
	}
	if s.Findings == nil {
		s.Findings = []Finding{}
	}
	s.Format, s.Version = Format, Version
	b, err := json.MarshalIndent(s, "", " ")
	if err != nil {
		return dst, err
	}
	return append(wire.AppendEscapedJSON(dst, b), '\n'), nil
}
