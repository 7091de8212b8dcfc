package source

import (
	"context"
	"io"
	"os"
	"sync/atomic"
)

// once is a file or standard input: one connection, and then no more.
type once struct {
	e    *Endpoint
	o    Options
	done atomic.Bool
}

func (s *once) Endpoint() *Endpoint { return s.e }
func (s *once) Close() error        { return nil }

func (s *once) Next(ctx context.Context) (*Conn, error) {
	if s.done.Swap(true) {
		return nil, io.EOF
	}
	if s.e.Scheme == SchemeStdin {
		in := s.o.Stdin
		if in == nil {
			in = os.Stdin
		}
		p := newPump(in, s.o.IdleTimeout)
		c := &Conn{Endpoint: s.e, r: p, pump: p}
		if f, ok := in.(*os.File); ok {
			c.witness = fileWitness(f)
		}
		return c, nil
	}
	f, err := openFile(ctx, s.e.Address)
	if err != nil {
		return nil, failed(s.e, "open", err)
	}
	st, err := f.Stat()
	if err == nil && st.IsDir() {
		err = badAddress("is a directory")
	}
	if err != nil {
		f.Close()
		return nil, failed(s.e, "open", err)
	}
	p := newPump(f, s.o.IdleTimeout)
	return &Conn{Endpoint: s.e, r: p, pump: p, closer: f.Close, witness: fileWitness(f)}, nil
}

// fileWitness is who vouches for a file's end: of a pipe nobody, since a writer
// that was killed ends it as one does that is done.
func fileWitness(f *os.File) witness {
	if st, err := f.Stat(); err == nil && st.Mode().IsRegular() {
		return byTransport
	}
	return byPipe
}

// openFile opens for reading. A pipe's open waits for its writer, so the
// waiting can be given up.
func openFile(ctx context.Context, path string) (*os.File, error) {
	type opened struct {
		f   *os.File
		err error
	}
	ch := make(chan opened, 1)
	go func() {
		f, err := os.Open(path)
		ch <- opened{f, err}
	}()
	select {
	case o := <-ch:
		return o.f, o.err
	case <-ctx.Done():
		go func() {
			if o := <-ch; o.err == nil {
				o.f.Close()
			}
		}()
		return nil, ctx.Err()
	}
}
