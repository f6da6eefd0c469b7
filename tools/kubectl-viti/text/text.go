// Package text renders objects, causes and trees for a terminal, and as JSON, YAML or names.
package text

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"

	"sigs.k8s.io/yaml"

	"github.com/vitistack/stack/apis/cause"
)

// Formats are the values of the flag output besides the empty one, which is for people.
var Formats = []string{"json", "yaml", "name"}

// Encode writes a value as JSON or YAML, or the names of objects, one on each line. The format is one
// of Formats.
func Encode(w io.Writer, format string, value any, refs ...cause.Ref) error {
	switch format {
	case "json":
		encoder := json.NewEncoder(w)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		return encoder.Encode(value)
	case "yaml":
		raw, err := yaml.Marshal(value)
		if err != nil {
			return err
		}
		_, err = w.Write(raw)
		return err
	default:
		for _, r := range refs {
			if _, err := fmt.Fprintf(w, "%s/%s\n", strings.ToLower(r.Kind), r.Name); err != nil {
				return err
			}
		}
		return nil
	}
}

// Age returns a duration as kubectl does, for example 5m or 3h.
func Age(since, now time.Time) string {
	if since.IsZero() {
		return ""
	}
	d := max(now.Sub(since), 0)
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 3*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}

// width is the column at which messages are wrapped.
const width = 110

// printable returns a text without control characters. Messages quote backends and users, whose
// escape sequences a terminal would obey.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.Is(unicode.Bidi_Control, r) {
			return -1
		}
		return r
	}, s)
}

// wrap returns a message in lines with an indentation, without control characters.
func wrap(message, indent string) string {
	var b strings.Builder
	line := indent
	for _, word := range strings.Fields(printable(message)) {
		if len(line)+len(word) > width && strings.TrimSpace(line) != "" {
			b.WriteString(strings.TrimRight(line, " ") + "\n")
			line = indent
		}
		line += word + " "
	}
	if strings.TrimSpace(line) != "" {
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}

// Chain writes a chain of causes, and who has to do what at its end.
func Chain(w io.Writer, chain []cause.Link, warnings []cause.Warning, now time.Time) error {
	var b strings.Builder
	for i, l := range chain {
		indent := strings.Repeat("  ", i)
		state := "is not Ready"
		if l.Ready {
			state = "is Ready"
		}
		if i > 0 {
			indent = strings.Repeat("  ", i-1) + "└ "
		}
		fmt.Fprintf(&b, "%s%s %s%s%s\n", indent, l.Ref, state, reasonOf(l), ageOf(l, now))
		// A message that ends with the message of the next object says the same twice.
		if i+1 == len(chain) || !strings.Contains(l.Message, chain[i+1].Message) {
			b.WriteString(wrap(l.Message, strings.Repeat("  ", i+1)))
		}
	}
	last := chain[len(chain)-1]
	if !last.Ready || last.Reason == "Stopped" {
		fmt.Fprintf(&b, "\nCause:  %s\nTurn:   %s\nRemedy: %s", last.Ref, last.Owner, strings.TrimLeft(wrap(last.Remedy, "        "), " "))
		if page := cause.PageOf(last.Ref.Kind, last.Reason); page != "" {
			fmt.Fprintf(&b, "More:   %s\n", page)
		}
	}
	for _, warning := range warnings {
		if warning.Type == cause.WarningPaused && warning.Remedy == last.Remedy {
			continue
		}
		fmt.Fprintf(&b, "\nAlso:   %s (%s): %sTurn:   %s\nRemedy: %s", warning.Type, warning.Reason, strings.TrimLeft(wrap(warning.Message, "        "), " "), warning.Owner,
			strings.TrimLeft(wrap(warning.Remedy, "        "), " "))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func reasonOf(l cause.Link) string {
	if l.Reason == "" {
		return ": no function has reconciled it"
	}
	return ": " + l.Reason
}

func ageOf(l cause.Link, now time.Time) string {
	if age := Age(l.Since, now); age != "" {
		return " (for " + age + ")"
	}
	return ""
}

// Problems writes what needs attention, by the roles that have to act.
func Problems(w io.Writer, problems []cause.Problem, now time.Time) error {
	var b strings.Builder
	if len(problems) == 0 {
		b.WriteString("Nothing needs attention.\n")
	}
	var turn cause.Role
	for _, p := range problems {
		if p.Owner != turn {
			turn = p.Owner
			fmt.Fprintf(&b, "%s\n", headings[turn])
		}
		condition := p.Reason
		if p.Condition != "Ready" {
			condition = p.Condition + ": " + p.Reason
		}
		if p.Reason == "" {
			condition = "not reconciled"
		}
		fmt.Fprintf(&b, "  %s%s: %s (for %s)\n%s", p.Ref, more(p.Others), condition, Age(p.Since, now), wrap(p.Message, "    "))
		b.WriteString(wrap("→ "+p.Remedy, "    "))
		if len(p.Blocks) > 0 {
			b.WriteString(wrap("blocks "+list(p.Blocks), "    "))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

var headings = map[cause.Role]string{
	cause.Requester: "The requester has to act:", cause.NetworkTeam: "The network team has to act:", cause.PlatformTeam: "The platform team has to act:",
	cause.NoAction: "Waiting for longer than expected:",
}

func more(others []cause.Ref) string {
	if len(others) == 0 {
		return ""
	}
	return fmt.Sprintf(" and %d more", len(others))
}

// list returns the first objects as text, and the number of the others.
func list(refs []cause.Ref) string {
	const most = 4
	var texts []string
	for _, r := range refs[:min(most, len(refs))] {
		texts = append(texts, r.String())
	}
	text := strings.Join(texts, ", ")
	if len(refs) > most {
		text += fmt.Sprintf(" and %d more", len(refs)-most)
	}
	return text
}

// Count is how many objects of a kind are Ready.
type Count struct {
	Kind  string `json:"kind"`
	Ready int    `json:"ready"`
	Total int    `json:"total"`
}

// Counts writes a line about each kind that has objects.
func Counts(w io.Writer, counts []Count) error {
	longest := 0
	for _, c := range counts {
		longest = max(longest, len(c.Kind))
	}
	for _, c := range counts {
		if _, err := fmt.Fprintf(w, "%-*s  %d of %d Ready\n", longest, c.Kind, c.Ready, c.Total); err != nil {
			return err
		}
	}
	return nil
}

// Tree writes an object with what belongs to it.
func Tree(w io.Writer, n cause.Node) error {
	var rows [][3]string
	draw(n, "", "", &rows)
	longest, state := 0, 0
	for _, row := range rows {
		longest, state = max(longest, runes(row[0])), max(state, runes(row[1]))
	}
	for _, row := range rows {
		line := printable(pad(row[0], longest) + "  " + pad(row[1], state) + "  " + row[2])
		if _, err := fmt.Fprintln(w, strings.TrimRight(line, " ")); err != nil {
			return err
		}
	}
	return nil
}

func runes(s string) int { return len([]rune(s)) }

func pad(s string, to int) string { return s + strings.Repeat(" ", to-runes(s)) }

// draw adds the rows of a node: its name with the branches before it, its state, and its detail.
func draw(n cause.Node, first, rest string, rows *[][3]string) {
	name := n.Kind + " " + n.Name
	if n.Shared {
		name = "uses " + name
	}
	*rows = append(*rows, [3]string{first + name, n.State, n.Detail})
	total := len(n.Parts) + len(n.Below)
	branch := func(i int) (string, string) {
		if i == total-1 {
			return rest + "└ ", rest + "  "
		}
		return rest + "├ ", rest + "│ "
	}
	for i, p := range n.Parts {
		first, _ := branch(i)
		*rows = append(*rows, [3]string{first + p.Name, "", p.Detail})
	}
	for i, below := range n.Below {
		first, rest := branch(len(n.Parts) + i)
		draw(below, first, rest, rows)
	}
}

// Refs returns the objects of a tree, from the top to the bottom, each once.
func Refs(n cause.Node) []cause.Ref {
	all := []cause.Ref{n.Ref}
	for _, below := range n.Below {
		for _, r := range Refs(below) {
			if !slices.Contains(all, r) {
				all = append(all, r)
			}
		}
	}
	return all
}
