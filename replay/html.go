package replay

// This file is the report as one self-contained HTML page, with a picture of
// what there is of each stream over time. Everything from the wire is text.

import (
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"

	"github.com/dustin/go-humanize"

	"wiretape/replay/internal/outcome"
	"wiretape/wire"
)

// coverageBins is how many stretches of time the picture of a stream has.
const coverageBins = 240

// coverage is what there is of one stream in each stretch of time.
type coverage struct {
	from, to int64
	bins     []cover
}

// cover says what is in one stretch.
type cover uint8

const (
	coverSealed cover = 1 << iota
	coverLive
	coverLoss
	coverAside
	coverConflict
)

func newCoverage(from, to int64) *coverage {
	return &coverage{from: from, to: to, bins: make([]cover, coverageBins)}
}

func (c *coverage) bin(ts int64) int {
	width := uint64(c.to) - uint64(c.from)
	if width == 0 || ts <= c.from {
		return 0
	}
	if ts >= c.to {
		return coverageBins - 1
	}
	// In floating point: the product of two times does not fit 64 bits.
	return min(int(float64(uint64(ts)-uint64(c.from))/float64(width)*coverageBins), coverageBins-1)
}

func (c *coverage) mark(first, last int64, what cover) {
	if last < c.from || first > c.to {
		return
	}
	for i := c.bin(first); i <= c.bin(last); i++ {
		c.bins[i] |= what
	}
}

// asideMark is where something was set aside, for the picture.
type asideMark struct {
	source      int64
	stream      string
	first, last int64
	what        cover
}

// maxAsideMarks bounds the marks that are kept.
const maxAsideMarks = 100_000

// picture draws the coverage of a source's streams, over the time that all of
// them span.
func (b *builder) picture(s *source, id int64, rs *ReportSource) error {
	if rs.empty {
		return nil
	}
	for i, st := range rs.Streams[:min(len(rs.Streams), htmlStreams)] {
		c := newCoverage(rs.from, rs.to)
		if err := b.contents.EachSpan(id, st.Stream, c.width(), func(first, last int64, live bool) {
			if live {
				c.mark(first, last, coverLive)
			} else {
				c.mark(first, last, coverSealed)
			}
		}); err != nil {
			return err
		}
		for _, l := range rs.Losses {
			if !l.Healed && l.From != nil && l.To != nil && (l.Stream == "" || l.Stream == st.Stream) {
				c.mark(*l.From, *l.To, coverLoss)
			}
		}
		for _, m := range b.aside.marks {
			if m.source == id && m.stream == st.Stream {
				c.mark(m.first, m.last, m.what)
			}
		}
		rs.Streams[i].cover = c
	}
	return nil
}

// width is the length of one stretch in nanoseconds, at least 1.
func (c *coverage) width() int64 {
	return max(1, int64((uint64(c.to)-uint64(c.from))/coverageBins))
}

// htmlRun is a run of equal stretches, as the template draws it.
type htmlRun struct {
	X, W  int
	Class string
	Title string
}

func (c *coverage) runs() []htmlRun {
	var out []htmlRun
	for i := 0; i < len(c.bins); {
		j := i + 1
		for j < len(c.bins) && c.bins[j] == c.bins[i] {
			j++
		}
		if v := c.bins[i]; v != 0 {
			class, words := v.words()
			at := func(n int) int64 { return c.from + int64(float64(uint64(c.to)-uint64(c.from))*float64(n)/coverageBins) }
			out = append(out, htmlRun{X: i, W: j - i, Class: class, Title: words + ", " + between([2]int64{at(i), at(j)})})
		}
		i = j
	}
	return out
}

// words are a stretch's class, the worst first, and all that is in it.
func (v cover) words() (class, words string) {
	for _, w := range []struct {
		bit  cover
		word string
	}{{coverConflict, "conflict"}, {coverAside, "set aside"}, {coverLoss, "gap"}, {coverSealed, "sealed"}, {coverLive, "live"}} {
		if v&w.bit == 0 {
			continue
		}
		if class == "" {
			class = w.word
			if class == "set aside" {
				class = "aside"
			}
			words = w.word
		} else {
			words += " and " + w.word
		}
	}
	return class, words
}

type htmlStream struct {
	Name, Sealed, Live string
	Runs               []htmlRun
}

type htmlSource struct {
	Title, UUID, State, From, To string
	Streams                      []htmlStream
	More                         string // streams that are not drawn
	Losses                       []string
}

type htmlKind struct {
	Kind     string
	N        int64
	Findings []htmlFinding
	More     int64
}

type htmlFinding struct{ Line, Cost string }

type htmlCount struct {
	Name string
	N    string
}

// htmlFindings is how many findings of one kind the page lists.
const htmlFindings = 100

// htmlStreams is how many streams of a source the page draws.
const htmlStreams = 1_000

// HTML writes the report as one page that needs nothing else.
func (r *Report) HTML(w io.Writer, archive string) error {
	page := struct {
		Archive, Verdict, Error, Words string
		Selection                      []string
		Counts                         []htmlCount
		Sources                        []htmlSource
		Kinds                          []htmlKind
		Unchecked                      []htmlCount
		Quarantine                     string
		Bins                           int
		More                           string
	}{Archive: archive, Verdict: string(r.Verdict), Error: r.Error, Selection: r.Selection, Quarantine: r.Quarantine, Bins: coverageBins}
	page.Words = map[Verdict]string{Clean: "Rebuilt whole, nothing to report.", Findings: "Rebuilt; something is missing or was found.", Failed: "Failed."}[r.Verdict]
	for _, c := range r.Counts.list() {
		if c.n != 0 {
			page.Counts = append(page.Counts, htmlCount{c.name, humanize.Comma(c.n)})
		}
	}
	for _, s := range r.Source {
		h := htmlSource{Title: label(s.Labels), UUID: wire.SafeText(s.UUID, 100), State: "not complete"}
		if s.Complete {
			h.State = "complete"
		}
		if s.Encoder != "" {
			h.State += ", encoder " + wire.SafeText(s.Encoder, 100)
		}
		if !s.empty {
			h.From, h.To = outcome.UTC(s.from), outcome.UTC(s.to)
		}
		drawn := min(len(s.Streams), htmlStreams)
		if n := int64(len(s.Streams)-drawn) + s.StreamsOmitted; n > 0 {
			h.More = wire.Many(n, "more stream")
		}
		for _, st := range s.Streams[:drawn] {
			x := htmlStream{Name: wire.SafeText(st.Stream, 200)}
			if st.Sealed != nil {
				x.Sealed = wire.Many(st.Segments, "segment")
			}
			if st.Live != nil {
				x.Live = wire.Many(st.Rows, "live row")
			}
			if st.cover != nil {
				x.Runs = st.cover.runs()
			}
			h.Streams = append(h.Streams, x)
		}
		for i, l := range s.Losses {
			if i == htmlFindings {
				h.Losses = append(h.Losses, fmt.Sprintf("… and %d more", int64(len(s.Losses)-i)+s.LossesOmitted))
				break
			}
			h.Losses = append(h.Losses, l.text())
		}
		page.Sources = append(page.Sources, h)
	}
	if r.SourcesOmitted > 0 {
		page.More = wire.Many(r.SourcesOmitted, "more source")
	}
	for _, kind := range slices.Sorted(maps.Keys(r.FindingsByKind)) {
		k := htmlKind{Kind: kind, N: r.FindingsByKind[kind]}
		for _, f := range r.Findings {
			if f.Kind == kind && len(k.Findings) < htmlFindings {
				k.Findings = append(k.Findings, htmlFinding{f.Line(), f.CostLine()})
			}
		}
		k.More = k.N - int64(len(k.Findings))
		page.Kinds = append(page.Kinds, k)
	}
	for _, why := range slices.Sorted(maps.Keys(r.Unchecked)) {
		page.Unchecked = append(page.Unchecked, htmlCount{wire.SafeText(why, 300), humanize.Comma(r.Unchecked[why])})
	}
	return htmlPage.Execute(w, page)
}

var htmlPage = template.Must(template.New("report").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{{.Archive}}: {{.Verdict}}</title>
<style>
:root{color-scheme:light dark;--bg:#fff;--fg:#1c2126;--dim:#5b6670;--line:#d8dde2;--sealed:#2f6db0;--live:#3c9a5f;--gap:#c98a12;--aside:#a04a9c;--conflict:#c23b3b}
@media(prefers-color-scheme:dark){:root{--bg:#15191d;--fg:#e6eaee;--dim:#9aa5af;--line:#333b43;--sealed:#6aa5e6;--live:#6cc78e;--gap:#e0a940;--aside:#cf86cb;--conflict:#ec7272}}
body{font:15px/1.5 system-ui,sans-serif;background:var(--bg);color:var(--fg);margin:2rem auto;max-width:70rem;padding:0 1rem}
h1{font-size:1.5rem;margin:0;overflow-wrap:anywhere}h2{font-size:1.1rem;margin:2rem 0 .5rem;overflow-wrap:anywhere}
.verdict{font-weight:600}.clean{color:var(--live)}.findings{color:var(--gap)}.failed{color:var(--conflict)}
.dim{color:var(--dim)}table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:.2rem .6rem .2rem 0;border-bottom:1px solid var(--line);vertical-align:top;overflow-wrap:anywhere}
td.n{text-align:right;font-variant-numeric:tabular-nums}svg{display:block;width:100%;height:1.2rem;background:color-mix(in srgb,var(--line) 35%,transparent)}
rect.sealed{fill:var(--sealed)}rect.live{fill:var(--live)}rect.gap{fill:var(--gap)}rect.aside{fill:var(--aside)}rect.conflict{fill:var(--conflict)}
.key span{display:inline-block;margin-right:1.2rem}.key i{display:inline-block;width:.9em;height:.9em;margin-right:.35em;vertical-align:-.1em}
.pic{width:55%}.wide{overflow-x:auto}ul{padding-left:1.2rem}
</style></head><body>
<h1>{{.Archive}}</h1>
<p class="verdict {{.Verdict}}">{{.Words}}{{if .Error}} {{.Error}}{{end}}</p>
{{if .Selection}}<p><strong>A part of the input:</strong> {{range $i, $s := .Selection}}{{if $i}}; {{end}}{{$s}}{{end}}.</p>{{end}}
{{if .Quarantine}}<p>What could not be in the archive is in <code>{{.Quarantine}}</code> beside it, with its bytes.</p>{{end}}
<div class="wide"><table><tbody>{{range .Counts}}<tr><th scope="row">{{.Name}}</th><td class="n">{{.N}}</td></tr>{{end}}</tbody></table></div>
{{if .Sources}}<p class="key">{{/* colour and word */}}<span><i style="background:var(--sealed)"></i>sealed</span><span><i style="background:var(--live)"></i>live</span><span><i style="background:var(--gap)"></i>gap</span><span><i style="background:var(--aside)"></i>set aside</span><span><i style="background:var(--conflict)"></i>conflict</span></p>{{end}}
{{range .Sources}}<h2>{{.Title}}</h2><p class="dim">{{.UUID}} · {{.State}}{{if .From}} · {{.From}} to {{.To}}{{end}}</p>
<div class="wide"><table><thead><tr><th>stream</th><th>sealed</th><th>live</th><th class="pic">over time</th></tr></thead><tbody>
{{range .Streams}}<tr><td>{{.Name}}</td><td>{{.Sealed}}</td><td>{{.Live}}</td><td class="pic"><svg viewBox="0 0 {{$.Bins}} 10" preserveAspectRatio="none" role="img" aria-label="coverage of {{.Name}}">{{range .Runs}}<rect class="{{.Class}}" x="{{.X}}" y="0" width="{{.W}}" height="10"><title>{{.Title}}</title></rect>{{end}}</svg></td></tr>
{{end}}</tbody></table></div>
{{if .More}}<p class="dim">… and {{.More}}, in the JSON report</p>{{end}}
{{if .Losses}}<ul>{{range .Losses}}<li>{{.}}</li>{{end}}</ul>{{end}}{{end}}
{{if .More}}<p class="dim">… and {{.More}}</p>{{end}}
{{if .Kinds}}<h2>Findings</h2>{{range .Kinds}}<h3>{{.Kind}} <span class="dim">{{.N}}</span></h3><ul>{{range .Findings}}<li>{{.Line}}{{if .Cost}}<br><span class="dim">{{.Cost}}</span>{{end}}</li>{{end}}{{if .More}}<li class="dim">… and {{.More}} more, in the JSON report</li>{{end}}</ul>{{end}}{{end}}
{{if .Unchecked}}<h2>Not checked (no fault)</h2><ul>{{range .Unchecked}}<li>{{.N}} × {{.Name}}</li>{{end}}</ul>{{end}}
</body></html>
`))
