package wire

// Scanner finds units in bytes that arrive, in whatever pieces, without
// holding them: it keeps the first bytes of one unit that the decoder asks for,
// and of a frame no more than its peek limit. Recording and indexing are built
// on it.
//
// Each call of Next consumes bytes up to the end of the current unit:
//
//	for len(p) > 0 {
//		n, u, done := s.Next(p)
//		write(p[:n])
//		if done && s.AtBoundary() { … u.End() is a boundary, and all is written up to it … }
//		p = p[n:]
//	}
//
// Junk is not given back, as by [Reader]: it becomes a finding. A decoder may
// have had to look behind a unit to know where it ends, or that it is one. Then
// n may be 0 with done, u.End() lies before Offset, and AtBoundary is false:
// such a unit counts, and the input is to be cut at a later one.
type Scanner struct {
	dec   Decoder
	limit int64
	off   int64 // of the current unit
	// passed is how many bytes behind off were consumed, buf the first of them
	// where they came in pieces. While the unit is not settled, buf is all of
	// them.
	passed int64
	buf    []byte
	// drop is how much of buf belongs to the unit that was given back last.
	drop    int
	head    Head
	want    int64 // how many first bytes to gather before the next look
	settled bool
	lost    bool
	end     bool
	// zeros that the input ends in at endAt; tail says that they began.
	zeros  Zeros
	endAt  int64
	tail   bool
	ending Ending // once Finish was called
	junk   int64  // bytes of the run of junk that ends here
	ends   Finding
	found  []Finding
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

// EndsIn says beforehand that the input ends at end, in zeros: what lies there
// and is read to its end. It is called before the first Next.
func (s *Scanner) EndsIn(z Zeros, end int64) { s.zeros, s.endAt = z, end }

// Decoder is the decoder that the scanner drives.
func (s *Scanner) Decoder() Decoder { return s.dec }

// Offset is how far input was consumed, as an offset in the connection.
func (s *Scanner) Offset() int64 { return s.off + s.passed }

// Boundary is the offset of the current unit's first byte: everything before it
// is whole.
func (s *Scanner) Boundary() int64 { return s.off }

// AtBoundary says that the input consumed so far ends where a unit ends. It is
// never true in junk, once the framing is lost, or where the input ended so.
func (s *Scanner) AtBoundary() bool {
	return s.passed == 0 && !s.lost && !s.tail && s.junk == 0 && (s.ending == "" || s.ending == EndingClean)
}

// Lost says that the framing is lost and will not be found again.
func (s *Scanner) Lost() bool { return s.lost }

// Searching says that bytes are being stepped over that no frame owns, until a
// frame is found again; it is true once Lost is.
func (s *Scanner) Searching() bool { return s.lost || s.junk > 0 }

// Skippable is how many of the coming bytes the scanner does not need to see:
// they may be passed by Skip.
func (s *Scanner) Skippable() int64 {
	if s.lost || !s.settled {
		return 0
	}
	return max(s.head.Size-s.passed, 0)
}

// Skip passes n bytes unseen, at most Skippable. The unit is given back when it
// ends, as by Next.
func (s *Scanner) Skip(n int64) (u Unit, done bool) {
	s.passed += max(min(n, s.Skippable()), 0)
	return s.finishUnit(s.buf)
}

// Findings gives what was found since the last call.
func (s *Scanner) Findings() []Finding {
	f := s.found
	s.found = nil
	return f
}

// Next consumes bytes of p up to the end of the current unit and says how many.
// done says that u is complete; u.Bytes then has as many of the unit's first
// bytes as the decoder asked for, good until the next call. The decoder has
// observed it.
func (s *Scanner) Next(p []byte) (n int, u Unit, done bool) {
	s.dropDone()
	for {
		if s.lost || s.tail {
			s.passed += int64(len(p) - n)
			s.buf = s.buf[:0]
			return len(p), Unit{}, false
		}
		if !s.settled {
			// The unit's first bytes: in p alone, or gathered in buf.
			first := p[n:]
			gathered := s.passed > 0
			if gathered {
				first = s.buf
			}
			if int64(len(first)) >= s.want || s.end {
				if len(first) == 0 {
					return n, Unit{}, false
				}
				s.look(first)
				if s.lost || s.tail {
					continue
				}
			}
			if int64(len(first)) < s.want {
				if !gathered {
					s.buf = s.buf[:0]
				}
				take := int(min(s.want-int64(len(s.buf)), int64(len(p)-n)))
				if take == 0 {
					return n, Unit{}, false
				}
				s.buf = append(s.buf, p[n:n+take]...)
				s.passed += int64(take)
				n += take
				continue
			}
			s.settled = true
			if !gathered {
				take := min(s.head.Size, int64(len(first)))
				s.passed = take
				n += int(take)
				if take == s.head.Size {
					u, done = s.finishUnit(first)
				} else {
					s.buf = append(s.buf[:0], first[:s.want]...)
				}
			}
		}
		if !done && s.settled {
			take := max(min(s.head.Size-s.passed, int64(len(p)-n)), 0)
			s.passed += take
			n += int(take)
			u, done = s.finishUnit(s.buf)
		}
		switch {
		case s.settled:
			return n, Unit{}, false
		case done:
			return n, u, true
		}
		// Junk: on to what is behind it.
		s.dropDone()
	}
}

// dropDone leaves in buf what lies behind the unit that ended. That is not
// moved: there may be thousands of units in what a decoder looked ahead at.
func (s *Scanner) dropDone() {
	if s.drop == len(s.buf) {
		s.buf = s.buf[:0]
	} else {
		s.buf = s.buf[s.drop:]
	}
	s.drop = 0
}

// look asks the decoder what the unit is.
func (s *Scanner) look(first []byte) {
	if s.zeros.At(s.off, s.endAt) {
		s.startTail(s.off)
		return
	}
	s.head = s.dec.Head(first, s.end)
	switch s.head.Type {
	case UnitLost:
		s.lost = true
		s.startJunk()
		return
	case UnitJunk:
		s.head.Size = s.zeros.Junk(s.off, s.head.Size, s.endAt)
	case UnitMore:
		// A decoder that asks for nothing more would stop the stream.
		s.head.Size = max(s.head.Size, int64(len(first))+1)
		s.want = s.head.Size
		return
	}
	s.head.Size = max(s.head.Size, 1)
	s.want = min(s.head.Peek, s.limit, s.head.Size)
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

// startTail says that the zero-filled tail begins at from, in the current unit.
func (s *Scanner) startTail(from int64) {
	s.endJunk()
	s.found = append(s.found, s.zeros.Found(s.off, from, s.endAt)...)
	s.tail, s.settled, s.want, s.drop, s.buf = true, false, 0, 0, nil
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

// inVain completes the finding of a stream that does not begin as its protocol
// says, and in which no frame was found to its end.
func inVain(f *Finding) {
	if f.Kind == KindBadPreamble {
		f.Message += "; no frame was found in the " + Count(f.Length, "byte") + " that are here"
	}
}

// finishUnit moves past the current unit once all of it was consumed, and gives
// it back unless it is junk. first starts with its first bytes.
func (s *Scanner) finishUnit(first []byte) (u Unit, done bool) {
	if !s.settled || s.passed < s.head.Size {
		return Unit{}, false
	}
	u = Unit{Type: s.head.Type, Offset: s.off, Size: s.head.Size, Kind: s.head.Kind}
	u.Bytes = first[:min(int64(len(first)), s.want)]
	if p, doubt := s.zeros.Into(u, s.endAt); doubt {
		s.startTail(p)
		return Unit{}, false
	}
	if u.Type == UnitJunk {
		s.startJunk()
		s.junk += u.Size
	} else {
		s.endJunk()
	}
	seen := len(s.found)
	s.found = s.dec.Observe(u, s.found)
	InUnit(u, s.found[seen:])
	s.off += u.Size
	s.passed -= u.Size
	if s.passed == 0 {
		s.drop = len(s.buf)
	} else {
		s.drop = int(u.Size)
	}
	s.settled, s.want = false, 0
	return u, u.Type != UnitJunk
}

// Rest says that the input ends here and gives back the next of the units that
// are known by that alone, because the decoder wanted to look behind them. Call
// it until done is false, and then Finish.
func (s *Scanner) Rest() (u Unit, done bool) {
	s.end = true
	_, u, done = s.Next(nil)
	return u, done
}

// Finish says that the input ends here, and gives back how it ended. What it
// finds is in Findings. Units that Rest was not asked for are observed.
func (s *Scanner) Finish() Ending {
	for done := true; done; {
		_, done = s.Rest()
	}
	s.ending = s.finish()
	return s.ending
}

func (s *Scanner) finish() Ending {
	if s.tail {
		return EndingZeroTail
	}
	if s.lost {
		s.junk += s.passed
		s.off += s.passed
		s.passed = 0
		s.endJunk()
		return EndingLost
	}
	if s.passed > 0 {
		if p, zeros := s.zeros.Cut(s.head, s.off, s.off+s.passed); zeros {
			s.startTail(p)
			return EndingZeroTail
		}
	}
	wasJunk := s.junk > 0
	s.endJunk()
	if s.passed > 0 {
		s.found = append(s.found, CutUnit(s.head, s.off, s.passed))
		return EndingCut
	}
	if h := s.dec.Head(nil, true); h.Finding != nil {
		f := *h.Finding
		f.Offset += s.off
		s.found = append(s.found, f)
		return EndingCut
	}
	if wasJunk {
		inVain(&s.found[len(s.found)-1])
		return EndingLost
	}
	return EndingClean
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
