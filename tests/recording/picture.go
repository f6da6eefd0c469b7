package main

import (
	"fmt"
	"html"
	"strings"
)

// The size of the terminal, in characters, and of a character, in pixels.
const (
	columns    = 132
	rows       = 30
	charWidth  = 7.25
	lineHeight = 18
	margin     = 16
)

// style colours the terminal. A reader who prefers no motion sees the last lines.
const style = `text{font:12px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:#d7dde4;white-space:pre}
.c{fill:#8fa3b8}.p{fill:#8ce0a0}
@media(prefers-reduced-motion:reduce){*{animation:none!important}}
`

// picture returns the recording as an SVG that plays for ever.
func (r *recorder) picture() string {
	lines := wrap(r.lines)
	total := r.clock + finalPause
	percent := func(l line) float64 { return 100 * float64(l.at) / float64(total) }
	const width, height = int(columns*charWidth) + 2*margin, rows*lineHeight + 2*margin
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-labelledby="title transcript">`, width, height, width, height)
	fmt.Fprintf(&b, "\n<title id=\"title\">From YAML to a Kubernetes cluster</title>\n<desc id=\"transcript\">%s</desc>\n<style>\n%s", html.EscapeString(transcript(r.lines)), style)
	for i, l := range lines {
		at := percent(l)
		fmt.Fprintf(&b, "@keyframes l%d{0%%,%.2f%%{opacity:0}%.2f%%,100%%{opacity:1}}#l%d{animation:l%d %.1fs infinite}\n", i, at, at+0.01, i, i, total.Seconds())
	}
	b.WriteString(scroll(lines, percent, total.Seconds()))
	fmt.Fprintf(&b, "</style>\n<rect width=\"100%%\" height=\"100%%\" rx=\"8\" fill=\"#12181f\"/>\n<clipPath id=\"window\"><rect y=\"%d\" width=\"%d\" height=\"%d\"/></clipPath>\n", margin, width, rows*lineHeight+4)
	fmt.Fprintf(&b, "<g clip-path=\"url(#window)\"><g id=\"lines\" transform=\"translate(0 %d)\">\n", -lineHeight*max(0, len(lines)-rows))
	for i, l := range lines {
		fmt.Fprintf(&b, "<text id=\"l%d\" class=\"%s\" x=\"%d\" y=\"%d\" xml:space=\"preserve\">%s</text>\n", i, l.class, margin, margin+(i+1)*lineHeight-5, html.EscapeString(l.text))
	}
	b.WriteString("</g></g>\n</svg>\n")
	return b.String()
}

// scroll returns the animation that keeps the newest line in the window.
func scroll(lines []line, percent func(line) float64, seconds float64) string {
	var b strings.Builder
	fmt.Fprintf(&b, "#lines{animation:scroll %.1fs infinite step-end}\n@keyframes scroll{0%%{transform:translateY(0)}", seconds)
	for i, l := range lines {
		if above := i + 1 - rows; above > 0 {
			fmt.Fprintf(&b, "%.2f%%{transform:translateY(%dpx)}", percent(l), -lineHeight*above)
		}
	}
	b.WriteString("}\n")
	return b.String()
}

// wrap breaks lines that are longer than the window, as a terminal does.
func wrap(lines []line) (wrapped []line) {
	for _, l := range lines {
		text := []rune(l.text)
		for len(text) > columns {
			wrapped = append(wrapped, line{l.at, l.class, string(text[:columns])})
			text = text[columns:]
		}
		wrapped = append(wrapped, line{l.at, l.class, string(text)})
	}
	return wrapped
}

// transcript is the text of the recording, for readers who cannot see it.
func transcript(lines []line) string {
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(l.text + "\n")
	}
	return b.String()
}
