package source_test

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"wiretape/capture/source"
	"wiretape/internal/peer"
)

func bufioReader(r io.Reader) *bufio.Reader { return bufio.NewReader(r) }

const secret = "s3cr3t-Zq8"

// TestCredentials: every way to give one reaches the server, and none shows in
// a name or an error.
func TestCredentials(t *testing.T) {
	dir := t.TempDir()
	tokenFile, headerFile := filepath.Join(dir, "token"), filepath.Join(dir, "headers")
	os.WriteFile(tokenFile, []byte(secret+"\n"), 0o600)
	os.WriteFile(headerFile, []byte("# keys\nX-Api-Key: "+secret+"\n\n"), 0o600)
	t.Setenv("WT_TEST_TOKEN", secret)
	var seen http.Header
	var query string
	addr := peer.Listen(t, peer.HTTP(nil, peer.BodyChunked, func(r *http.Request) int {
		seen, query = r.Header, r.URL.RawQuery
		return 401
	}))
	for _, tc := range []struct {
		name, endpoint string
		http           source.HTTP
		header, want   string
	}{
		{"token file", "http://" + addr, source.HTTP{TokenFile: tokenFile}, "Authorization", "Bearer " + secret},
		{"token in the environment", "http://" + addr, source.HTTP{TokenEnv: "WT_TEST_TOKEN"}, "Authorization", "Bearer " + secret},
		{"header file", "http://" + addr, source.HTTP{HeaderFile: headerFile}, "X-Api-Key", secret},
		{"header", "http://" + addr, source.HTTP{Header: []string{"x-api-key:" + secret}}, "X-Api-Key", secret},
		{"user in the URL", "http://u:" + secret + "@" + addr, source.HTTP{}, "Authorization", "Basic dTpzM2NyM3QtWnE4"},
		{"query", "http://" + addr + "/p?token=" + secret + "&" + secret, source.HTTP{}, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e, err := source.Parse(tc.endpoint)
			if err != nil {
				t.Fatal(err)
			}
			s, err := source.Open(t.Context(), e, source.Options{HTTP: tc.http})
			if err != nil {
				t.Fatal(err)
			}
			_, err = s.Next(t.Context())
			var se *source.Error
			if !errors.As(err, &se) || se.Status != 401 {
				t.Fatal(err)
			}
			if tc.header != "" && seen.Get(tc.header) != tc.want {
				t.Errorf("the server saw %q", seen.Get(tc.header))
			}
			if tc.name == "query" && !strings.Contains(query, secret) {
				t.Errorf("the server saw the query %q", query)
			}
			if strings.Contains(err.Error()+e.String(), secret) {
				t.Errorf("shown: %v, %s", err, e)
			}
		})
	}
}

// TestNoErrorShowsASecret: whatever is wrong with what was given.
func TestNoErrorShowsASecret(t *testing.T) {
	dir := t.TempDir()
	two := filepath.Join(dir, "two")
	os.WriteFile(two, []byte(secret+"\n"+secret), 0o600)
	for _, tc := range []struct {
		endpoint string
		http     source.HTTP
	}{
		{"http://u:" + secret + "@127.0.0.1:99999", source.HTTP{}},
		{"http://u:" + secret + "@127.0.0.1:1", source.HTTP{}},
		{"http://u:" + secret + "@:1", source.HTTP{}},
		{"http://u:" + secret + "%zz@127.0.0.1:1", source.HTTP{}},
		{"http://127.0.0.1:1/?" + secret, source.HTTP{}},
		{"http://127.0.0.1:1", source.HTTP{Header: []string{secret}}},
		{"http://127.0.0.1:1", source.HTTP{Header: []string{"a b: " + secret}}},
		{"http://127.0.0.1:1", source.HTTP{Header: []string{"a: x\n" + secret}}},
		{"http://127.0.0.1:1", source.HTTP{TokenFile: two}},
		{"http://127.0.0.1:1", source.HTTP{Proxy: "http://u:" + secret + "@127.0.0.1:1"}},
		{"http://127.0.0.1:1", source.HTTP{Proxy: "http://u:" + secret + "%zz@"}},
		{"https://u:" + secret + "@127.0.0.1:1", source.HTTP{}},
		{"tcp://u:" + secret + "@127.0.0.1:1", source.HTTP{}},
		{"tls://u:" + secret + "@127.0.0.1:1", source.HTTP{}},
	} {
		e, err := source.Parse(tc.endpoint)
		if err == nil {
			var s source.Source
			if s, err = source.Open(t.Context(), e, source.Options{HTTP: tc.http, ConnectTimeout: time.Second}); err == nil {
				_, err = s.Next(t.Context())
			}
			if strings.Contains(e.String(), secret) {
				t.Errorf("the name shows it: %s", e)
			}
		}
		if err == nil {
			t.Errorf("%q: no error", tc.endpoint)
		} else if strings.Contains(err.Error(), secret) {
			t.Errorf("shown: %v", err)
		}
	}
}

// TestEnvironmentsProxyIsNotUsed: a proxy is used when it is named, and only then.
func TestEnvironmentsProxyIsNotUsed(t *testing.T) {
	for _, v := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"} {
		t.Setenv(v, "http://127.0.0.1:1")
	}
	direct := "http://" + peer.Listen(t, peer.HTTP([]byte("direct"), peer.BodyLength, nil))
	through := ""
	proxy := "http://" + peer.Listen(t, peer.HTTP([]byte("proxied"), peer.BodyLength, func(r *http.Request) int {
		through = r.URL.String()
		return 200
	}))
	for _, tc := range []struct{ proxy, want string }{{"", "direct"}, {proxy, "proxied"}} {
		c, err := mustOpen(t, direct, source.Options{HTTP: source.HTTP{Proxy: tc.proxy}}).Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got, _ := read(c, 1)
		c.Close()
		if string(got) != tc.want {
			t.Errorf("with proxy %q: %q", tc.proxy, got)
		}
	}
	if through != direct+"/" {
		t.Errorf("the proxy was asked for %q", through)
	}
}

func TestParse(t *testing.T) {
	for _, tc := range []struct{ in, want, err string }{
		{in: "-", want: "-"},
		{in: "tcp://host:9", want: "tcp://host:9"},
		{in: "tcp://[::1]:9/", want: "tcp://[::1]:9"},
		{in: "tls://host:9", want: "tls://host:9"},
		{in: "listen+tcp://:9", want: "listen+tcp://:9"},
		{in: "listen+tls://:0", want: "listen+tls://:0"},
		{in: "unix://./a/../s", want: "unix://s"},
		{in: "file:///a b%20c", want: "file:///a b%20c"},
		{in: "http://h", want: "http://h"},
		{in: "https://u:p@h:8/a/b?k=v&w=1&bare#frag", want: "https://h:8/a/b?k=…&w=…&=…"},
		{in: "host:9", err: "scheme"},
		{in: "/a/file", err: "scheme"},
		{in: "", err: "scheme"},
		{in: "ftp://h/x", err: "no transport"},
		{in: "tcp://host", err: "host:port"},
		{in: "tcp://host:0", err: "port"},
		{in: "tcp://host:http", err: "port"},
		{in: "tcp://host:70000", err: "port"},
		{in: "tcp://:9", err: "host is missing"},
		{in: "tcp://u@h:9", err: "without a user"},
		{in: "http://", err: "host"},
		{in: "http://h:0", err: "port"},
		{in: "unix://", err: "path"},
		{in: "unix://" + strings.Repeat("x", 108), err: "107 bytes"},
		{in: "file://a\x00b", err: "path"},
	} {
		e, err := source.Parse(tc.in)
		if tc.err != "" {
			var se *source.Error
			if !errors.As(err, &se) || !se.Permanent(true) || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%q: %v, want %q", tc.in, err, tc.err)
			}
			continue
		}
		if err != nil || e.String() != tc.want {
			t.Errorf("%q: %v, %v, want %q", tc.in, e, err, tc.want)
		}
	}
}

func TestBackoff(t *testing.T) {
	b := source.NewBackoff(4 * time.Second)
	want := []time.Duration{250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, 4 * time.Second, 4 * time.Second}
	differ := false
	for i, w := range want {
		d := b.Next(nil)
		if d < w/2 || d > w*3/2 {
			t.Errorf("wait %d is %v, want %v with half of it by chance", i, d, w)
		}
		differ = differ || d != w
	}
	if !differ {
		t.Error("no jitter")
	}
	b.Ended(time.Second)
	if d := b.Next(nil); d < 2*time.Second {
		t.Errorf("a short connection started the waits over: %v", d)
	}
	b.Ended(time.Minute)
	if d := b.Next(nil); d > 375*time.Millisecond {
		t.Errorf("a long connection did not start the waits over: %v", d)
	}
	if d := b.Next(&source.Error{RetryAfter: time.Minute}); d != time.Minute {
		t.Errorf("the server's wish was not heard: %v", d)
	}
	// The limit also holds for hours of trying.
	for range 100 {
		if d := b.Next(nil); d > 6*time.Second {
			t.Fatalf("beyond the limit: %v", d)
		}
	}
}
