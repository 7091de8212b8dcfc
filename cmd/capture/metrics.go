package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"wiretape/capture/record"
)

// metric is one number of a status.
type metric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(record.Status) float64
}

func counter(name, help string, value func(record.Status) float64) metric {
	return metric{prometheus.NewDesc("wiretape_"+name, help, nil, nil), prometheus.CounterValue, value}
}

func gauge(name, help string, value func(record.Status) float64) metric {
	return metric{prometheus.NewDesc("wiretape_"+name, help, nil, nil), prometheus.GaugeValue, value}
}

// collector gives a recorder's status to Prometheus, as of the scrape.
type collector struct {
	status  func() record.Status
	metrics []metric
}

func newCollector(status func() record.Status) *collector {
	return &collector{status, []metric{
		counter("received_bytes_total", "Bytes that came from the network.", func(s record.Status) float64 { return float64(s.Received) }),
		counter("written_bytes_total", "Bytes that were written to files.", func(s record.Status) float64 { return float64(s.Written) }),
		counter("synced_bytes_total", "Bytes that survive a power loss.", func(s record.Status) float64 { return float64(s.Synced) }),
		counter("not_recorded_bytes_total", "Bytes that were received, or passed on, and are in no file.", func(s record.Status) float64 { return float64(s.NotRecorded) }),
		counter("connections_total", "Connections begun, each direction of a relayed one by itself.", func(s record.Status) float64 { return float64(s.Connections) }),
		counter("failed_attempts_total", "Tries that made no connection.", func(s record.Status) float64 { return float64(s.Attempts) }),
		counter("sealed_files_total", "Files that were sealed.", func(s record.Status) float64 { return float64(s.Files) }),
		counter("pruned_files_total", "Sealed files that were deleted.", func(s record.Status) float64 { return float64(s.Pruned) }),
		counter("findings_total", "Findings in the bytes, of sealed files.", func(s record.Status) float64 { return float64(s.Findings) }),
		counter("stalled_seconds_total", "Time in which publishers were held up by full buffers, added up.", func(s record.Status) float64 { return s.Stalled.Seconds() }),
		counter("hook_failures_total", "Sealed files for which the command failed.", func(s record.Status) float64 { return float64(s.HookFailures) }),
		gauge("open_connections", "Connections being recorded now.", func(s record.Status) float64 { return float64(s.Open) }),
		gauge("buffered_bytes", "Bytes between the network and the disk.", func(s record.Status) float64 { return float64(s.Waiting) }),
		gauge("buffered_most_bytes", "The most bytes that one buffer ever held.", func(s record.Status) float64 { return float64(s.WaitingMost) }),
	}}
}

// byProtocol counts connections by what their bytes are.
var byProtocol = prometheus.NewDesc("wiretape_protocol_connections_total",
	"Connections that turned out to be of a protocol, raw for none that is known.", []string{"protocol"}, nil)

// openBytes tells the protocol of each open connection, and how much came.
var openBytes = prometheus.NewDesc("wiretape_open_connection_received_bytes",
	"Bytes that came by an open connection.", []string{"connection", "endpoint", "protocol"}, nil)

func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- byProtocol
	ch <- openBytes
	for _, m := range c.metrics {
		ch <- m.desc
	}
}

func (c *collector) Collect(ch chan<- prometheus.Metric) {
	s := c.status()
	for _, m := range c.metrics {
		ch <- prometheus.MustNewConstMetric(m.desc, m.kind, m.value(s))
	}
	for p, n := range s.Protocols {
		ch <- prometheus.MustNewConstMetric(byProtocol, prometheus.CounterValue, float64(n), p)
	}
	for _, o := range s.Now {
		ch <- prometheus.MustNewConstMetric(openBytes, prometheus.GaugeValue, float64(o.Received),
			o.Connection, strings.ToValidUTF8(o.Endpoint, "\uFFFD"), o.Protocol)
	}
}

// loopbackUnlessTold makes :9464 the loopback interface's; a host that is named
// is taken as it is.
func loopbackUnlessTold(addr string) (string, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", err
	}
	if host == "" {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port), nil
}

// serveMetrics serves /metrics until ctx ends, and gives the address.
func serveMetrics(ctx context.Context, addr string, status func() record.Status, failed func(error)) (string, error) {
	addr, err := loopbackUnlessTold(addr)
	if err != nil {
		return "", err
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return "", err
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(newCollector(status), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
		WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 64 << 10}
	context.AfterFunc(ctx, func() { s.Close() })
	go func() {
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			failed(err)
		}
	}()
	return l.Addr().String(), nil
}
