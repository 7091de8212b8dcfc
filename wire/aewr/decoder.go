package aewr

import (
	"bytes"

	"wiretape/wire"
)

// Decoder reads one direction of one AEWR connection. It keeps the version and
// the newest epoch seen, and whether header checksums hold on this connection.
type Decoder struct {
	told      wire.Direction // by whom the connection was made
	direction wire.Direction // as the first one-way type showed

	seen      bool // an epoch
	versioned bool // a version
	version   uint16
	epoch     uint64
	lost      bool // the bytes before were not a frame

	// good: a checksum has matched. bad: a frame's has not, and the frame was
	// taken by its length. Bad and never good means that the reading of the
	// checksum does not hold on this connection.
	good, bad bool
	// reported says that the one finding that tells so was given.
	reported   bool
	misdirect  bool
	wordsFound bool

	// cached is the header that Head looked at last and its checksum, so that
	// Observe need not do it again.
	cached    [HeaderSize]byte
	cachedSum uint32
}

var (
	_ wire.Decoder = (*Decoder)(nil)
	_ wire.Briefer = (*Decoder)(nil)
)

// Direction is the direction as the message types showed it, else as it was
// told: who connected to whom says less than what travels.
func (d *Decoder) Direction() wire.Direction {
	if d.direction == wire.DirectionUnknown {
		return d.told
	}
	return d.direction
}

// Epoch is the newest manifest_epoch seen.
func (d *Decoder) Epoch() uint64 { return d.epoch }

// ChecksumsHold says whether the connection's header checksums can be believed:
// one has matched, or none was seen yet. Where none ever matched, the reading
// of the checksum's scope does not hold for this peer.
func (d *Decoder) ChecksumsHold() bool { return d.good || !d.bad }

// Head finds the frame at the start of b.
//
// A frame whose checksum matches has the length that it says. One whose does
// not is believed when another frame starts where it ends, or the stream does.
// Otherwise, and where there is no magic or a length beyond MaxFrame, the frame
// start is lost, and found again only at a header that passes every check.
func (d *Decoder) Head(b []byte, end bool) wire.Head {
	if d.lost {
		return d.search(b, 0, end, nil)
	}
	n := min(len(b), len(Magic))
	if n < len(Magic) && !end {
		return wire.Head{Type: wire.UnitMore, Size: int64(len(Magic))}
	}
	if string(b[:n]) != Magic[:n] {
		f := wire.Finding{Kind: wire.KindLost, Field: "magic", Want: Magic, Got: wire.SafeText(string(b[:n]), 0),
			Message: "no frame starts here"}
		return d.search(b, 1, end, &f)
	}
	if len(b) < HeaderSize {
		return wire.Head{Type: wire.UnitMore, Size: HeaderSize}
	}
	head := (*[HeaderSize]byte)(b)
	h := parseHeader(head)
	size := h.Size()
	frame := wire.Head{Type: wire.UnitFrame, Size: size, Peek: HeaderSize, Kind: uint32(h.MessageType)}
	if size > MaxFrame {
		f := wire.Finding{Kind: wire.KindBadLength, Offset: offInstructionCount, Field: "instruction_count, constants_len",
			Want: "at most " + wire.Itoa(MaxFrame) + " bytes", Got: wire.Itoa(size) + " bytes",
			Message: "a frame of " + wire.Itoa(size) + " bytes is impossible; the frame start is lost"}
		return d.search(b, 1, end, &f)
	}
	d.cached, d.cachedSum = *head, checksum(head)
	if d.cachedSum == h.HeaderChecksum || d.bad && !d.good {
		return frame
	}
	look := min(size+int64(len(Magic)), ConfirmLimit)
	if int64(len(b)) < look && !end {
		return wire.Head{Type: wire.UnitMore, Size: look}
	}
	if d.confirmed(b[:min(int64(len(b)), look)], size) {
		return frame
	}
	f := d.checksumFinding(&h, d.cachedSum)
	f.Message += " and nothing confirms the frame's length; the frame start is lost"
	return d.search(b, 1, end, &f)
}

// confirmed says that a frame whose checksum does not match has the size that
// it says, as far as the bytes from its start on tell: no sound header lies
// inside of it, and another frame follows, or the stream ends in it or with it.
// One that is too large to tell is believed while no checksum has matched yet.
func (d *Decoder) confirmed(b []byte, size int64) bool {
	if at := d.nextSound(b, 1); at >= 0 && int64(at) < size {
		return false
	}
	if size+int64(len(Magic)) > ConfirmLimit {
		return !d.good || int64(len(b)) < ConfirmLimit
	}
	rest := b[min(size, int64(len(b))):]
	return string(rest) == Magic[:len(rest)]
}

// nextSound is the place of the first header in b, from from on, that passes
// every check, -1 when there is none.
func (d *Decoder) nextSound(b []byte, from int) int {
	for ; ; from++ {
		at, _, sums := nextHeader(b, from)
		if at < 0 || sums {
			return at
		}
		from = at
	}
}

// nextHeader is the first header in b, from from on, that passes every check but
// that of its checksum, with its place, -1 when there is none; sums says that it
// passes this one too.
func nextHeader(b []byte, from int) (at int, h Header, sums bool) {
	for ; ; from++ {
		i := bytes.Index(b[from:], []byte(Magic))
		if i < 0 || len(b)-from-i < HeaderSize {
			return -1, Header{}, false
		}
		from += i
		head := (*[HeaderSize]byte)(b[from:])
		if h = parseHeader(head); h.sound() {
			return from, h, checksum(head) == h.HeaderChecksum
		}
	}
}

// search steps over bytes that are no frame, up to the next header that passes
// every check, which may start at from or later. While no checksum has matched on
// this connection its peer may compute it otherwise: a header that passes all
// others is one too, where such another one follows on its frame.
func (d *Decoder) search(b []byte, from int, end bool, why *wire.Finding) wire.Head {
	junk := func(n int) wire.Head {
		return wire.Head{Type: wire.UnitJunk, Size: int64(n), Finding: why}
	}
	if len(b) < from {
		// Not even the byte that is known to be none is there.
		return wire.Head{Type: wire.UnitMore, Size: int64(from)}
	}
	for next := from; ; next++ {
		at, h, sums := nextHeader(b, next)
		if at < 0 {
			break
		}
		next = at
		if !sums {
			follows, need := d.follows(b[at:], h.Size(), end)
			if !follows && need == 0 {
				continue
			}
			if need > 0 && at == 0 {
				return wire.Head{Type: wire.UnitMore, Size: need}
			}
		}
		if at > 0 {
			return junk(at) // it is looked at again from its own start
		}
		return wire.Head{Type: wire.UnitFrame, Size: h.Size(), Peek: HeaderSize, Kind: uint32(h.MessageType)}
	}
	if end && len(b) > 0 {
		return junk(len(b))
	}
	// What is left is a header whose first bytes are there, or none.
	open := max(from, len(b)-HeaderSize+1)
	for ; open < len(b); open++ {
		n := min(len(b)-open, len(Magic))
		if string(b[open:open+n]) == Magic[:n] {
			break
		}
	}
	if open == 0 {
		return wire.Head{Type: wire.UnitMore, Size: HeaderSize}
	}
	return junk(open)
}

// follows says that a header that is sound but for its checksum follows on a
// frame of size bytes at the start of b, or the stream's end; need is how many
// bytes it takes to tell, 0 when it is told.
func (d *Decoder) follows(b []byte, size int64, end bool) (yes bool, need int64) {
	behind := size + HeaderSize
	switch {
	case d.good || behind > ConfirmLimit:
		return false, 0
	case int64(len(b)) >= behind:
		h, ok := ParseHeader(b[size:])
		return ok && h.sound(), 0
	case !end:
		return false, behind
	}
	return int64(len(b)) == size, 0
}

func (d *Decoder) checksumFinding(h *Header, sum uint32) wire.Finding {
	return wire.Finding{Kind: KindChecksum, Offset: offChecksum, Length: 4, Field: "header_checksum",
		Want: hex32(sum), Got: hex32(h.HeaderChecksum),
		Message: "header_checksum does not match the header"}
}

func hex32(n uint32) string {
	return "0x" + string(wire.AppendHex(nil, []byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}))
}

func hex16(n uint16) string {
	return "0x" + string(wire.AppendHex(nil, []byte{byte(n >> 8), byte(n)}))
}

// typeText is a message type as findings name it.
func typeText(t uint16) string {
	if name := TypeName(t); name != "" {
		return name + " (" + hex16(t) + ")"
	}
	return hex16(t)
}

// Observe applies a frame to the session state. With the whole frame it checks
// its payload too.
func (d *Decoder) Observe(u wire.Unit, findings []wire.Finding) []wire.Finding {
	if u.Type == wire.UnitJunk {
		d.lost = true
		return findings
	}
	if u.Type != wire.UnitFrame || len(u.Bytes) < HeaderSize {
		return findings
	}
	d.lost = false
	head := (*[HeaderSize]byte)(u.Bytes)
	h := parseHeader(head)
	sum := d.cachedSum
	if *head != d.cached {
		sum = checksum(head)
	}
	if sum == h.HeaderChecksum {
		d.good = true
	} else {
		d.bad = true
		if d.good || !d.reported {
			f := d.checksumFinding(&h, sum)
			f.Offset += u.Offset
			if !d.good {
				f.Cost = "until one matches on this connection (reading " + ReadingChecksumScope + "), lengths are taken as they are and further mismatches are not reported"
			}
			findings = append(findings, f)
			d.reported = true
		}
	}
	if !d.seen || h.Version != d.version || h.ManifestEpoch != d.epoch {
		findings = d.observeSession(u, &h, findings)
	}
	if t := lookup(h.MessageType); t.name == "" || t.since > h.Version || t.dir != wire.DirectionUnknown && t.dir != d.direction {
		findings = d.observeType(u, &h, t, findings)
	}
	if h.Pad != 0 || h.Version < tenantVersion {
		if field, off, value := h.reserved(); field != "" {
			findings = append(findings, wire.Finding{Kind: KindReserved, Offset: u.Offset + off, Field: field,
				Want: "0", Got: wire.Utoa(value),
				Message: field + " is reserved in version " + wire.Itoa(int64(h.Version)) + " and not zero"})
		}
	}
	if int64(len(u.Bytes)) == u.Size && (u.Size > HeaderSize || lookup(h.MessageType).fixed) {
		findings = d.observePayload(u, &h, findings)
	}
	return findings
}

// observeSession follows version and epoch.
func (d *Decoder) observeSession(u wire.Unit, h *Header, findings []wire.Finding) []wire.Finding {
	if d.versioned && h.Version != d.version {
		findings = append(findings, wire.Finding{Kind: KindVersionMismatch, Offset: u.Offset + offVersion, Length: 2, Field: "version",
			Want: wire.Itoa(int64(d.version)), Got: wire.Itoa(int64(h.Version)),
			Message: "version " + wire.Itoa(int64(h.Version)) + " after version " + wire.Itoa(int64(d.version)) + " on the same connection",
			Cost:    "a peer refuses every frame of another version"})
	}
	if (!d.versioned || h.Version != d.version) && !h.VersionKnown() {
		known := "17 to 31 without 28"
		findings = append(findings, wire.Finding{Kind: wire.KindBadVersion, Offset: u.Offset + offVersion, Length: 2, Field: "version",
			Want: known, Got: wire.Itoa(int64(h.Version)),
			Message: "version " + wire.Itoa(int64(h.Version)) + " is not one of " + known,
			Cost:    "payloads of this version are shown as bytes"})
	}
	d.version, d.versioned = h.Version, true
	if d.seen && h.ManifestEpoch < d.epoch {
		findings = append(findings, wire.Finding{Kind: KindEpochFence, Offset: u.Offset + offEpoch, Length: 8, Field: "manifest_epoch",
			Want: "at least " + wire.Utoa(d.epoch), Got: wire.Utoa(h.ManifestEpoch),
			Message: "epoch " + wire.Utoa(h.ManifestEpoch) + " after epoch " + wire.Utoa(d.epoch) + " was seen",
			Cost:    "a worker refuses this " + typeText(h.MessageType)})
	} else {
		d.epoch = h.ManifestEpoch
	}
	d.seen = true
	return findings
}

// observeType follows the direction and reports types that don't belong.
func (d *Decoder) observeType(u wire.Unit, h *Header, t *typeInfo, findings []wire.Finding) []wire.Finding {
	place := wire.Finding{Offset: u.Offset + offMessageType, Length: 2, Field: "message_type", Got: typeText(h.MessageType)}
	switch {
	case t.name == "":
		place.Kind = wire.KindUnknownKind
		place.Message = "message type " + place.Got + " is not known"
		place.Cost = "its payload is shown as bytes"
		return append(findings, place)
	case t.since > h.Version:
		place.Kind = KindTypeTooNew
		place.Want = "a type of version " + wire.Itoa(int64(h.Version))
		place.Message = place.Got + " came with version " + wire.Itoa(int64(t.since)) + ", the frame's version is " + wire.Itoa(int64(h.Version))
		place.Cost = "its payload is shown as bytes"
		return append(findings, place)
	case d.direction == wire.DirectionUnknown:
		d.direction = t.dir
	case t.dir != wire.DirectionUnknown && t.dir != d.direction && !d.misdirect:
		d.misdirect = true
		place.Kind = KindDirection
		place.Want = "a type that travels " + d.direction.String()
		place.Message = place.Got + " travels " + t.dir.String() + ", this stream is " + d.direction.String() + " as its first frames show"
		place.Cost = "further ones are not reported"
		return append(findings, place)
	}
	return findings
}

// observePayload reports a payload that does not decode, or what is odd in it.
func (d *Decoder) observePayload(u wire.Unit, h *Header, findings []wire.Finding) []wire.Finding {
	var p Payload
	f := p.parse(h, u.Bytes[HeaderSize:])
	if f == nil {
		if h.InstructionCount != 0 && p.Kind != PayloadBytes && p.Kind != PayloadProgram && !d.wordsFound {
			d.wordsFound = true
			findings = append(findings, wire.Finding{Kind: KindReading, Offset: u.Offset + offInstructionCount, Length: 4,
				Field: ReadingRecordsInConstants, Want: "0 instruction words", Got: wire.Itoa(int64(h.InstructionCount)),
				Message: typeText(h.MessageType) + " has instruction words; both parts are decoded as one payload",
				Cost:    "further ones on this connection are not reported"})
		}
		f = p.remark()
	}
	if f != nil {
		findings = append(findings, f.finding(u.Offset, h))
	}
	return findings
}

// Info is what a list shows of a frame; it needs the header, and for record
// counts the payload.
func (d *Decoder) Info(u wire.Unit) wire.Info {
	if u.Type == wire.UnitJunk {
		return wire.Info{Name: "junk", Summary: "no frame starts here"}
	}
	h, ok := ParseHeader(u.Bytes)
	if !ok {
		return wire.Info{}
	}
	i := brief(u, &h)
	i.Summary = "v" + wire.Itoa(int64(h.Version)) + " epoch " + wire.Utoa(h.ManifestEpoch)
	if int64(len(u.Bytes)) != u.Size {
		return i
	}
	var p Payload
	if f := p.parse(&h, u.Bytes[HeaderSize:]); f != nil {
		i.Summary += ", " + f.message
	} else if s := p.summary(&h); s != "" {
		i.Summary += ", " + s
	}
	return i
}

// Brief is Info without its Summary.
func (d *Decoder) Brief(u wire.Unit) wire.Info {
	if h, ok := ParseHeader(u.Bytes); ok && u.Type == wire.UnitFrame {
		return brief(u, &h)
	}
	return wire.Info{}
}

// brief is what the header tells, and a heartbeat's time.
func brief(u wire.Unit, h *Header) wire.Info {
	i := wire.Info{Name: TypeName(h.MessageType)}
	if i.Name == "" {
		i.Name = hex16(h.MessageType)
	}
	if tenant := h.TenantID(); h.ContainerID != 0 || tenant != 0 {
		i.HasSource, i.Source = true, h.ContainerID
		i.Label = "container " + wire.Utoa(h.ContainerID)
		if tenant != 0 {
			i.Label = "tenant " + wire.Utoa(tenant) + ", " + i.Label
		}
	}
	if h.TxnID != 0 {
		i.Stream = "txn " + wire.Utoa(h.TxnID)
	}
	if h.MessageType == HeartbeatPing || h.MessageType == HeartbeatPong {
		var p Payload
		if int64(len(u.Bytes)) == u.Size && p.parse(h, u.Bytes[HeaderSize:]) == nil && p.Kind == PayloadHeartbeat {
			hb := p.Heartbeat()
			i.Time, i.HasTime = hb.time()
		}
	}
	return i
}

// contextSize is what the context of a connection takes at most.
const contextSize = 128

// Context is the newest epoch, the version, and what was learned of direction
// and checksums.
func (d *Decoder) Context(limit int) *wire.Context {
	if !d.seen {
		return nil
	}
	c := &wire.Context{Protocol: Name, Version: uint32(d.version)}
	if limit < contextSize {
		c.Omitted = []string{ctxEpoch}
		return c
	}
	var sums uint64
	if d.good {
		sums |= 1
	}
	if d.bad {
		sums |= 2
	}
	c.Entries = []wire.ContextEntry{{Values: []wire.ContextValue{
		{Name: ctxEpoch, Num: d.epoch},
		{Name: ctxDirection, Num: uint64(d.direction)},
		{Name: ctxChecksums, Num: sums},
	}}}
	return c
}
