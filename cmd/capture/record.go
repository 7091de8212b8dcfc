package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"wiretape/capture/record"
	"wiretape/capture/source"
	"wiretape/cmd/internal/cli"
	"wiretape/wire"
)

func recordCommand() *cli.Command {
	return &cli.Command{
		Name: "record", Args: "ENDPOINT… --dir DIR",
		Short: "record what endpoints send, byte for byte",
		Long: `ENDPOINT is tcp://host:port, tls://host:port, unix://path, http://… or https://…
(the response's body), file://path, - for standard input, or listen+tcp://,
listen+tls:// or listen+unix:// for publishers that connect in.

A connection that ends is made again, with growing waits; what can't succeed
(404, a wrong certificate, another protocol than the one named) ends at once.
SIGUSR1 begins new files. SIGINT and SIGTERM seal everything and exit 0; another
one, a second later or more, exits at once and leaves a file that the next start
recovers.`,
		Examples: `# one publisher, files of 64 MiB or an hour
capture record tcp://10.0.0.5:7000 --dir /var/lib/wiretape --rotate-bytes 64MiB --rotate-every 1h
# a response that goes on for ever, with a token from a file
capture record https://host/metrics/stream --token-file /etc/wiretape/token --dir rec
# one stream from another program, once
nc host 7000 | capture record - --dir rec`,
		Setup: setupRecord,
	}
}

func setupRecord(fs *pflag.FlagSet) func(*cli.Run) error {
	var (
		s          service
		src        source.Options
		o          record.Options
		socketMode string
	)
	s.register(fs)
	fs.BoolVar(&o.NoRetry, "no-retry", false, "end with the connection")
	cli.DurationVar(fs, &o.RetryMax, "retry-max", source.DefaultRetryMax, "the longest wait between tries")
	cli.DurationVar(fs, &src.IdleTimeout, "idle-timeout", 2*time.Minute, "give a connection up on which nothing came for so long; 0 never, which is also what standard input and files start with")
	cli.DurationVar(fs, &src.ConnectTimeout, "connect-timeout", source.DefaultConnectTimeout, "give a try up after so long")
	fs.IntVar(&o.MaxConnections, "max-connections", record.DefaultMaxConnections, "publishers that connect in at the same time")
	fs.StringVar(&src.TLS.CA, "tls-ca", "", "PEM `FILE` of the only issuers to trust; for listen+tls, who signs the clients' certificates")
	fs.StringVar(&src.TLS.Cert, "tls-cert", "", "PEM `FILE` of our certificate")
	fs.StringVar(&src.TLS.Key, "tls-key", "", "PEM `FILE` of its key")
	fs.StringVar(&src.TLS.ServerName, "tls-server-name", "", "the `NAME` to expect in the server's certificate")
	fs.StringArrayVar(&src.HTTP.Header, "header", nil, "a request header, `NAME:VALUE`; ps shows it, so no secrets here")
	fs.StringVar(&src.HTTP.HeaderFile, "header-file", "", "`FILE` of request headers, one a line")
	fs.StringVar(&src.HTTP.TokenFile, "token-file", "", "`FILE` that holds a bearer token")
	fs.StringVar(&src.HTTP.TokenEnv, "token-env", "", "the environment's `VARIABLE` that holds a bearer token")
	fs.StringVar(&src.HTTP.Proxy, "proxy", "", "`URL` of an HTTP proxy; those of the environment are not used")
	fs.StringVar(&socketMode, "socket-mode", "0600", "permissions `MODE` of a listen+unix socket")
	return func(run *cli.Run) error {
		if len(run.Args) == 0 {
			return cli.Usagef("name at least one endpoint")
		}
		var endpoints []*source.Endpoint
		stdin := false
		for i, a := range run.Args {
			e, err := source.Parse(a)
			if err != nil {
				if len(run.Args) > 1 {
					return cli.Usagef("endpoint %d%s: %v", i+1, shown(a), err)
				}
				return cli.Usagef("%v", err)
			}
			if e.Scheme == source.SchemeStdin {
				if stdin {
					return cli.Usagef("standard input can be read once")
				}
				stdin = true
			}
			endpoints = append(endpoints, e)
		}
		mode, err := strconv.ParseUint(socketMode, 8, 9)
		if err != nil {
			return cli.Usagef("--socket-mode takes permissions such as 0660")
		}
		src.SocketMode = os.FileMode(mode)
		src.Stdin = run.Stdin
		opt, err := s.options()
		if err != nil {
			return err
		}
		switch {
		case o.RetryMax <= 0:
			return cli.Usagef("--retry-max takes a positive duration")
		case src.ConnectTimeout <= 0:
			return cli.Usagef("--connect-timeout takes a positive duration")
		case src.IdleTimeout < 0:
			return cli.Usagef("--idle-timeout takes a duration, 0 for never")
		case o.MaxConnections < 1:
			return cli.Usagef("--max-connections takes a number from 1 on")
		}
		for _, e := range endpoints {
			if err := source.Check(e, src); err != nil {
				return cli.Usagef("%v", err)
			}
		}
		opt.NoRetry, opt.RetryMax, opt.MaxConnections = o.NoRetry, o.RetryMax, o.MaxConnections
		var sources []source.Source
		defer func() {
			for _, s := range sources {
				s.Close()
			}
		}()
		opened := func(ctx context.Context, log *slog.Logger) error {
			for _, e := range endpoints {
				warnEndpoint(log, e, src)
				o := src
				if e.Once() && !run.Flags.Changed("idle-timeout") {
					// It can't be had again, so silence must not end it unasked.
					o.IdleTimeout = 0
				}
				s, err := source.Open(ctx, e, o)
				if err != nil {
					return err
				}
				if a := source.Address(s); a != "" {
					log.Info("listening", "endpoint", e.String(), "address", a)
				}
				sources = append(sources, s)
			}
			return nil
		}
		return s.run(run, opt, opened, func(ctx context.Context, r *record.Recorder) { r.Record(ctx, sources...) })
	}
}

// shown is a malformed endpoint for an error, unless it may hold a secret.
func shown(a string) string {
	if strings.ContainsAny(a, "@?") {
		return ""
	}
	return " (" + wire.SafeText(a, 100) + ")"
}

// warnEndpoint says what an operator should know before the first byte.
func warnEndpoint(log *slog.Logger, e *source.Endpoint, o source.Options) {
	if !e.HTTP() {
		return
	}
	secret := o.HTTP.TokenFile != "" || o.HTTP.TokenEnv != ""
	if secret && e.Scheme == source.SchemeHTTP && !e.Loopback() {
		log.Warn("the token goes over the network unencrypted", "endpoint", e.String())
	}
	if o.HTTP.Proxy == "" {
		for _, v := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"} {
			if os.Getenv(v) != "" {
				log.Warn(fmt.Sprintf("%s is set in the environment and not used; --proxy names a proxy", v), "endpoint", e.String())
				break
			}
		}
	}
}
