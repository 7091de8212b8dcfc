package wire

// Scanner finds units in bytes that arrive, in whatever pieces, without
// holding them: it keeps at most the first bytes of one unit that the decoder
// asks for, and never more than its peek limit. Recording and indexing are
// built on it.
//
// Each call of Next consumes bytes up to the end of the current unit:
//
//	for len(p) > 0 {
//		n, u, done := s.Next(p)
//		write(p[:n])
//		if done { … u.End() is a boundary … }
//		p = p[n:]
//	}
//
// A decoder may have had to look behind a unit to know where it ends. Then n
// may be 0 with done, u.End() lies before Offset, and AtBoundary is false: such
// a unit counts, and the input is to be cut at a later one.
type Scanner struct {
	dec     Decoder
	limit   int64
	off     int64  // of the current unit
	passed  int64  // bytes of it seen
	buf     []byte // its first bytes, where they came in pieces
	ahead   int    // bytes at the end of buf that lie behind the unit given back last
	head    Head
	settled bool
	lost    bool
	junk    int64 // bytes of the run of junk that ends here
	ends    Finding
	found   []Finding
}

// DefaultPeekLimit is how many bytes of one unit a Scanner holds at most. A
// unit whose decoder asks for more is observed with this much of it.
const DefaultPeekLimit = 1 << 20

// NewScanner starts at the offset in the connection at which dec starts.
// peekLimit 0 is DefaultPeekLimit.
func NewScanner(dec Decoder, offset int64, peekLimit int) *Scanner {
	if peekLimit <= 0 {
		peekLimit = DefaultPeekLimit
	}
	return &Scanner{dec: dec, off: offset, limit: int64(peekLimit)}
}

// Decoder is the decoder that the scanner drives.
func (s *Scanner) Decoder() Decoder { return s.dec }

// Offset is how far input was consumed, as an offset in the connection.
func (s *Scanner) Offset() int64 { return s.off + s.passed }

// Boundary is the offset of the current unit's first byte: everything before it
// is whole.
func (s *Scanner) Boundary() int64 { return s.off }

// AtBoundary says that the input consumed so far ends where a unit ends. It is
// never true once the framing is lost.
func (s *Scanner) AtBoundary() bool { return s.passed == 0 && !s.lost }

// Lost says that the framing is lost and will not be found again.
func (s *Scanner) Lost() bool { return s.lost }

// Skippable is how many of the coming bytes the scanner does not need to see:
// they may be passed by Skip.
func (s *Scanner) Skippable() int64 {
	if s.lost || !s.settled {
		return 0
	}
	if need := min(s.head.Peek, s.limit); s.passed < need {
		return 0
	}
	return s.head.Size - s.passed
}

// Skip passes n bytes unseen, at most Skippable. The unit is given back when it
// ends, as by Next.
func (s *Scanner) Skip(n int64) (u Unit, done bool) {
	s.passed += min(n, s.Skippable())
	return s.finishUnit(s.buf)
}

// Findings gives what was found since the last call.
func (s *Scanner) Findings() []Finding {
	f := s.found
	s.found = nil
	return f
}

// Next consumes bytes of p up to the end of the current unit and says how many.
// done says that u is complete; u.Bytes then has the unit's first bytes, as
// many as the decoder needed, good until the next call. The decoder has
// observed it.
func (s *Scanner) Next(p []byte) (n int, u Unit, done bool) {
	if s.lost {
		s.passed += int64(len(p))
		return len(p), Unit{}, false
	}
	s.dropDone()
	for !s.settled || s.passed < min(s.head.Peek, s.limit, s.head.Size) {
		// The unit's first bytes: in p alone, or gathered in buf.
		first := p[n:]
		gathered := s.passed > 0
		if gathered {
			first = s.buf
		}
		if !s.settled {
			s.look(first, false)
			if s.lost {
				s.passed += int64(len(p) - n)
				s.buf = s.buf[:0]
				return len(p), Unit{}, false
			}
		}
		want := s.head.Size
		if s.head.Type != UnitMore {
			want = min(s.head.Peek, s.limit, s.head.Size)
			if want <= int64(len(first)) {
				s.settled = true
				if !gathered {
					take := min(s.head.Size, int64(len(first)))
					if take < s.head.Size {
						s.buf = append(s.buf[:0], first[:want]...)
						first = s.buf
					}
					s.passed = take
					n += int(take)
					u, done = s.finishUnit(first)
					return n, u, done
				}
				break
			}
		}
		if !gathered {
			s.buf = s.buf[:0]
		}
		take := int(min(want-s.passed, int64(len(p)-n)))
		if take <= 0 {
			return n, Unit{}, false
		}
		s.buf = append(s.buf, p[n:n+take]...)
		s.passed += int64(take)
		n += take
	}
	take := max(min(s.head.Size-s.passed, int64(len(p)-n)), 0)
	s.passed += take
	n += int(take)
	u, done = s.finishUnit(s.buf)
	return n, u, done
}

// dropDone moves what lies behind the unit given back last to the front of buf.
func (s *Scanner) dropDone() {
	if s.ahead > 0 {
		s.buf = s.buf[:copy(s.buf, s.buf[len(s.buf)-s.ahead:])]
		s.ahead = 0
	}
}

// look asks the decoder what the unit is.
func (s *Scanner) look(first []byte, end bool) {
	s.head = s.dec.Head(first, end)
	switch s.head.Type {
	case UnitLost:
		s.lost = true
		s.startJunk()
	case UnitMore:
		// A decoder that asks for nothing more would stop the stream.
		s.head.Size = max(s.head.Size, int64(len(first))+1)
	default:
		s.head.Size = max(s.head.Size, 1)
	}
}

func (s *Scanner) startJunk() {
	if s.junk == 0 {
		s.ends = Finding{}
		if s.head.Finding != nil {
			s.ends = *s.head.Finding
		}
		s.ends.Offset += s.off
	}
}

// endJunk reports a run of junk that ended at the current unit.
func (s *Scanner) endJunk() {
	if s.junk > 0 {
		s.found = append(s.found, SteppedOver(s.ends, s.off-s.junk, s.junk))
		s.junk = 0
	}
}

// SteppedOver completes the finding f of a run of n bytes from off on that no
// frame owns; a zero f gets a kind and a message.
func SteppedOver(f Finding, off, n int64) Finding {
	if f.Kind == "" {
		f.Kind, f.Message = KindLost, "no frame starts here"
	}
	f.Offset, f.Length = off, n
	f.Cost = Itoa(n) + " bytes stepped over"
	return f
}

func (s *Scanner) finishUnit(first []byte) (Unit, bool) {
	if !s.settled || s.passed < s.head.Size {
		return Unit{}, false
	}
	u := Unit{Type: s.head.Type, Offset: s.off, Size: s.head.Size, Kind: s.head.Kind}
	u.Bytes = first[:min(int64(len(first)), u.Size)]
	if u.Type == UnitJunk {
		s.startJunk()
		s.junk += u.Size
	} else {
		s.endJunk()
	}
	s.found = s.dec.Observe(u, s.found)
	s.off += u.Size
	s.passed -= u.Size
	s.ahead, s.settled = int(s.passed), false
	return u, true
}

// Rest says that the input ends here and gives back the next of the units that
// are known by that alone, because the decoder wanted to look behind them. Call
// it until done is false, and then Finish.
func (s *Scanner) Rest() (u Unit, done bool) {
	if s.lost || s.settled || s.passed == 0 {
		return Unit{}, false
	}
	s.dropDone()
	s.look(s.buf, true)
	if s.lost || s.head.Type == UnitMore || s.head.Size > s.passed {
		return Unit{}, false
	}
	s.settled = true
	return s.finishUnit(s.buf)
}

// Finish says that the input ends here, and gives back whether it ended at a
// boundary. What it finds is in Findings. Units that Rest was not asked for are
// observed.
func (s *Scanner) Finish() (clean bool) {
	for done := true; done; {
		_, done = s.Rest()
	}
	if s.lost {
		s.junk += s.passed
		s.off += s.passed
		s.passed = 0
		s.endJunk()
		return false
	}
	wasJunk := s.junk > 0
	s.endJunk()
	if s.passed > 0 {
		s.found = append(s.found, CutUnit(s.head, s.off, s.passed))
		return false
	}
	return !wasJunk
}

// CutUnit is the finding of a stream that ends inside the unit with head h,
// which starts at off and of which have bytes are there.
func CutUnit(h Head, off, have int64) Finding {
	what := "frame"
	if h.Type == UnitPreamble {
		what = "preamble"
	}
	if h.Type == UnitMore {
		return Cut(off, have, 0, what)
	}
	return Cut(off, have, h.Size, what)
}
