package text

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/vitistack/stack/apis/cause"
	"github.com/vitistack/stack/apis/preview"
)

// Changed returns the objects of a plan that would be created or changed.
func Changed(p *preview.Preview) (refs []cause.Ref) {
	for _, d := range p.Documents {
		if d.Action != preview.ActionNone {
			refs = append(refs, cause.Ref{Kind: d.Kind, Namespace: d.Namespace, Name: d.Name})
		}
	}
	return refs
}

// Plan writes what applying a manifest would do, object by object.
func Plan(w io.Writer, p *preview.Preview) error {
	var b strings.Builder
	for _, d := range p.Documents {
		name := d.Name
		if d.Namespace != "" {
			name = d.Namespace + "/" + d.Name
		}
		action, isRefused := describeAction(d.Action), slices.ContainsFunc(p.Errors, func(f preview.Finding) bool { return isAbout(f, d) })
		if isRefused {
			action = "is refused"
		}
		fmt.Fprintf(&b, "%s %s: %s\n", d.Kind, name, action)
		for _, c := range d.Changes {
			if isRefused && !c.Outcome.IsRefusal() {
				fmt.Fprintf(&b, "  %s: %s -> %s (not applied: see Refused)\n", c.Field, value(c.From), value(c.To))
				continue
			}
			fmt.Fprintf(&b, "  %s: %s -> %s (%s)\n", c.Field, value(c.From), value(c.To), c.Outcome)
			b.WriteString(wrap(c.Effect, "      "))
		}
		for i, s := range d.Steps {
			fmt.Fprintf(&b, "  %d. %s %s%s\n", i+1, s.Action, strings.Join(s.Machines, ", "), atOnce(s))
			b.WriteString(wrap(s.Detail, "      "))
		}
		writeFindings(&b, "Refused", d, p.Errors)
		writeFindings(&b, "Waits", d, p.Warnings)
		if d.Note != "" {
			b.WriteString(wrap("Note: "+d.Note, "  "))
		}
	}
	if !p.Changed {
		b.WriteString("Nothing would change.\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func describeAction(a preview.Action) string {
	switch a {
	case preview.ActionCreate:
		return "is created"
	case preview.ActionChange:
		return "is changed"
	default:
		return "stays as it is"
	}
}

func atOnce(s preview.Step) string {
	switch {
	case len(s.Machines) == 1:
		return ""
	case s.AtOnce == 1:
		return ", one after the other"
	default:
		return fmt.Sprintf(", %d at the same time", s.AtOnce)
	}
}

// isAbout reports whether a finding is about an object. A document with a ClusterTemplate is about several.
func isAbout(f preview.Finding, d preview.Result) bool {
	return f.Document == d.Document && f.Kind == d.Kind && f.Name == d.Name && f.Namespace == d.Namespace
}

func writeFindings(b *strings.Builder, word string, d preview.Result, findings []preview.Finding) {
	for _, f := range findings {
		if !isAbout(f, d) {
			continue
		}
		at := ""
		if f.Pointer != "" {
			at = " " + f.Pointer
		}
		if f.Reason != "" {
			at += " (" + f.Reason + ")"
		}
		b.WriteString(wrap(word+at+": "+f.Detail, "  "))
	}
}

// value returns a value of a field for people, shortened.
func value(v any) string {
	if v == nil {
		return "(absent)"
	}
	s, isText := v.(string)
	if !isText {
		raw, err := json.Marshal(v)
		if err != nil {
			return fmt.Sprint(v)
		}
		s = string(raw)
	}
	const most = 80
	if runes := []rune(printable(s)); len(runes) > most {
		return string(runes[:most]) + "..."
	}
	return printable(s)
}
