package main

import (
	"context"
	"log/slog"
	"net"
	"strings"

	"github.com/spf13/pflag"

	"wiretape/capture/record"
	"wiretape/capture/source"
	"wiretape/cmd/internal/cli"
)

func relayCommand() *cli.Command {
	return &cli.Command{
		Name: "relay", Args: "--listen ADDR --to ADDR --dir DIR",
		Short: "sit between two peers, pass every byte both ways and record both",
		Long: `ADDR is host:port, tcp://host:port or unix://path. Any protocol can be relayed; one
that is known is also cut at its frames. Both directions are recorded, as a pair
of connections.

Recording never stops the traffic: what can't be recorded (the disk is full, or
slower than the traffic for longer than --buffer lasts) is passed on, counted and
said, and the exit code is 3. With --strict-record it is the other way: a full
buffer holds the peers up, and when recording fails the relay stops.`,
		Examples: `# replicas connect to port 7001 instead of the primary's 7000
capture relay --listen :7001 --to primary:7000 --dir rec`,
		Setup: setupRelay,
	}
}

func setupRelay(fs *pflag.FlagSet) func(*cli.Run) error {
	var (
		s          service
		listen, to string
		strict     bool
		client     bool
		maxConns   int
	)
	fs.StringVar(&listen, "listen", "", "the address `ADDR` that clients connect to")
	fs.StringVar(&to, "to", "", "the address `ADDR` of the server")
	s.register(fs)
	s.buffer = relayBuffer
	fs.Lookup("buffer").DefValue = s.buffer.String()
	fs.BoolVar(&strict, "strict-record", false, "rather stop the traffic than pass on what is not recorded")
	fs.BoolVar(&client, "client-publishes", false, "what clients send is downstream: publishers connect to --listen")
	fs.IntVar(&maxConns, "max-connections", record.DefaultMaxConnections, "connections at the same time")
	return func(run *cli.Run) error {
		if len(run.Args) > 0 {
			return cli.Usagef("relay takes no arguments beside its flags")
		}
		from, err := relayEnd("listen+", "--listen", listen)
		if err != nil {
			return err
		}
		dest, err := relayEnd("", "--to", to)
		if err != nil {
			return err
		}
		o, err := s.options()
		if err != nil {
			return err
		}
		if maxConns < 1 {
			return cli.Usagef("--max-connections takes a number from 1 on")
		}
		o.Strict, o.ClientPublishes, o.MaxConnections = strict, client, maxConns
		var l net.Listener
		opened := func(ctx context.Context, log *slog.Logger) error {
			var err error
			if l, err = source.Listen(ctx, from, 0); err != nil {
				return err
			}
			log.Info("listening", "address", l.Addr().String())
			return nil
		}
		defer func() {
			if l != nil {
				l.Close()
			}
		}()
		return s.run(run, o, opened, func(ctx context.Context, r *record.Recorder) { r.Relay(ctx, l, dest) })
	}
}

// relayBuffer is larger than a recording's: when it is full bytes are missed,
// where a recording only holds its publisher up.
const relayBuffer = 64 << 20

func relayEnd(prefix, flag, addr string) (*source.Endpoint, error) {
	if addr == "" {
		return nil, cli.Usagef("%s is missing", flag)
	}
	s := strings.TrimPrefix(addr, prefix)
	if !strings.Contains(s, "://") {
		s = source.SchemeTCP + "://" + s
	}
	e, err := source.Parse(prefix + s)
	if err != nil {
		return nil, cli.Usagef("%s: %v", flag, err)
	}
	switch e.Scheme {
	case source.SchemeTCP, source.SchemeUnix, source.SchemeListenTCP, source.SchemeListenUnix:
		return e, nil
	}
	return nil, cli.Usagef("%s: a relay takes tcp:// and unix://, not %s://", flag, strings.TrimPrefix(e.Scheme, prefix))
}
