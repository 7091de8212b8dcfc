package replay

// This file is the report as one self-contained HTML page, with a picture of
// what there is of each stream over time. Everything from the wire is text.

import (
	"html/template"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

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
	// What is missing may lie before and behind all that there is.
	for _, l := range rs.Losses {
		if !l.Healed && l.From != nil && l.To != nil {
			rs.from, rs.to = min(rs.from, *l.From), max(rs.to, *l.To)
		}
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
	for _, w := range coverWords {
		if v&w.bit == 0 {
			continue
		}
		if class == "" {
			class, words = w.class, w.word
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
	// Ticks are times along the picture, from its start to its end.
	Ticks  []htmlTick
	Losses []htmlLoss
	// MoreLosses are not listed.
	MoreLosses string
}

// htmlTick is a time at a place along the picture, in hundredths of its width.
type htmlTick struct {
	At    int
	Align string
	Text  string
}

// htmlLoss is a loss with what became of it.
type htmlLoss struct{ State, Word, Text string }

// htmlLosses are the first losses, and how many more there are.
func htmlLosses(losses []Loss, omitted int64) (out []htmlLoss, more string) {
	for i, l := range losses {
		if i == htmlFindings {
			return out, wire.Many(int64(len(losses)-i)+omitted, "more loss")
		}
		out = append(out, htmlLoss{string(l.State), l.State.words(), l.what()})
	}
	return out, ""
}

// htmlKey is one colour of the picture.
type htmlKey struct{ Class, Word string }

// coverWords are the classes and words of what a stretch holds, the worst first.
var coverWords = []struct {
	bit         cover
	class, word string
}{{coverConflict, "conflict", "conflict"}, {coverAside, "aside", "set aside"}, {coverLoss, "gap", "missing"}, {coverSealed, "sealed", "sealed"}, {coverLive, "live", "live"}}

// countWords are the counts of the report in people's words.
var countWords = map[string]string{
	"sources": "sources", "source_updates": "updates of labels and metadata", "index_entries": "index entries stored",
	"rows": "live rows stored", "rows_skipped": "rows that could not be attributed", "segments": "segments stored",
	"segments_held": "segments sent again", "clock_offsets": "clock observations stored", "kinds_skipped": "frames of an unknown kind",
	"gaps": "gaps", "rows_held": "rows in a segment or sent again", "rows_conflicting": "conflicting rows, set aside",
	"rows_below_watermark": "rows that no reader would see, set aside", "rows_superseded": "rows that a later segment holds",
	"segments_quarantined": "segments set aside", "frames": "frames read", "frames_refused": "frames refused", "bytes": "bytes read",
	"connections": "connections",
}

// tickCount is how many times are written along a picture.
const tickCount = 2

// ticks are the times along a picture from from to to.
func ticks(from, to int64) (out []htmlTick) {
	if from == to {
		return []htmlTick{{0, "start", shortTime(from)}}
	}
	for i := range tickCount + 1 {
		at := from + int64(float64(uint64(to)-uint64(from))*float64(i)/tickCount)
		align := "middle"
		switch i {
		case 0:
			align = "start"
		case tickCount:
			at, align = to, "end"
		}
		out = append(out, htmlTick{100 * i / tickCount, align, shortTime(at)})
	}
	return out
}

// shortTime is a time to the second, for a place with little room.
func shortTime(ns int64) string { return time.Unix(0, ns).UTC().Format("2006-01-02 15:04:05Z") }

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
		Advice                         []string
		Key                            []htmlKey
		Bins                           int
		More                           string
		Losses                         []htmlLoss
		MoreLosses                     string
	}{Archive: archive, Verdict: string(r.Verdict), Error: r.Error, Selection: r.Selection, Quarantine: r.Quarantine, Bins: coverageBins}
	if r.Verdict == Failed {
		page.Words = "Failed: " + wire.SafeText(r.Error, 500)
	} else {
		words := r.headline()
		page.Words, page.Advice = strings.ToUpper(words[:1])+words[1:]+".", r.advice()
	}
	drawnClasses := map[string]bool{}
	for _, c := range r.Counts.list() {
		if c.n != 0 {
			page.Counts = append(page.Counts, htmlCount{countWords[c.name], humanize.Comma(c.n)})
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
			h.Ticks = ticks(s.from, s.to)
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
				for _, run := range x.Runs {
					drawnClasses[run.Class] = true
				}
			}
			h.Streams = append(h.Streams, x)
		}
		h.Losses, h.MoreLosses = htmlLosses(s.Losses, s.LossesOmitted)
		page.Sources = append(page.Sources, h)
	}
	page.Losses, page.MoreLosses = htmlLosses(r.Nobodys, 0)
	for _, w := range coverWords {
		if drawnClasses[w.class] {
			page.Key = append(page.Key, htmlKey{w.class, w.word})
		}
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
.key i.sealed{background:var(--sealed)}.key i.live{background:var(--live)}.key i.gap{background:var(--gap)}.key i.aside{background:var(--aside)}.key i.conflict{background:var(--conflict)}
.losses b{display:inline-block;min-width:9em;font-weight:600}.losses .made-good b{color:var(--live)}.losses .missing b{color:var(--conflict)}.losses .unknown b{color:var(--gap)}
.axis{position:relative;height:1.3em;font-size:.75rem;font-weight:400;color:var(--dim)}.axis span{position:absolute;white-space:nowrap}.axis .middle{transform:translateX(-50%)}.axis .end{transform:translateX(-100%)}
.pic{width:60%}.wide{overflow-x:auto}ul{padding-left:1.2rem}
</style></head><body>
<h1>{{.Archive}}</h1>
<p class="verdict {{.Verdict}}">{{.Words}}</p>
{{range .Advice}}<p>{{.}}</p>{{end}}
{{if .Selection}}<p><strong>A part of the input:</strong> {{range $i, $s := .Selection}}{{if $i}}; {{end}}{{$s}}{{end}}.</p>{{end}}
{{if .Quarantine}}<p>What could not be in the archive is in <code>{{.Quarantine}}</code> beside it, with its bytes.</p>{{end}}
<div class="wide"><table><tbody>{{range .Counts}}<tr><th scope="row">{{.Name}}</th><td class="n">{{.N}}</td></tr>{{end}}</tbody></table></div>
{{if .Key}}<p class="key">{{range .Key}}<span><i class="{{.Class}}"></i>{{.Word}}</span>{{end}}</p>{{end}}
{{range .Sources}}<h2>{{.Title}}</h2><p class="dim">{{.UUID}} · {{.State}}{{if .From}} · {{.From}} to {{.To}}{{end}}</p>
<div class="wide"><table><thead><tr><th>stream</th><th>sealed</th><th>live</th><th class="pic">over time{{if .Ticks}}<div class="axis">{{range .Ticks}}<span class="{{.Align}}" style="left:{{.At}}%">{{.Text}}</span>{{end}}</div>{{end}}</th></tr></thead><tbody>
{{range .Streams}}<tr><td>{{.Name}}</td><td>{{.Sealed}}</td><td>{{.Live}}</td><td class="pic"><svg viewBox="0 0 {{$.Bins}} 10" preserveAspectRatio="none" role="img" aria-label="coverage of {{.Name}}">{{range .Runs}}<rect class="{{.Class}}" x="{{.X}}" y="0" width="{{.W}}" height="10"><title>{{.Title}}</title></rect>{{end}}</svg></td></tr>
{{end}}</tbody></table></div>
{{if .More}}<p class="dim">… and {{.More}}, in the JSON report</p>{{end}}
{{if .Losses}}<h3>Losses</h3><ul class="losses">{{range .Losses}}<li class="{{.State}}"><b>{{.Word}}</b> {{.Text}}</li>{{end}}{{if .MoreLosses}}<li class="dim">… and {{.MoreLosses}}</li>{{end}}</ul>{{end}}{{end}}
{{if .More}}<p class="dim">… and {{.More}}</p>{{end}}
{{if .Losses}}<h2>Losses of no source that is known</h2><ul class="losses">{{range .Losses}}<li class="{{.State}}"><b>{{.Word}}</b> {{.Text}}</li>{{end}}{{if .MoreLosses}}<li class="dim">… and {{.MoreLosses}}</li>{{end}}</ul>{{end}}
{{if .Kinds}}<h2>Findings</h2>{{range .Kinds}}<h3>{{.Kind}} <span class="dim">{{.N}}</span></h3><ul>{{range .Findings}}<li>{{.Line}}{{if .Cost}}<br><span class="dim">{{.Cost}}</span>{{end}}</li>{{end}}{{if .More}}<li class="dim">… and {{.More}} more, in the JSON report</li>{{end}}</ul>{{end}}{{end}}
{{if .Unchecked}}<h2>Not checked (no fault)</h2><ul>{{range .Unchecked}}<li>{{.N}} × {{.Name}}</li>{{end}}</ul>{{end}}
</body></html>
`))
