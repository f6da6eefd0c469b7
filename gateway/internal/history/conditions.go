package history

import (
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// conditions are the conditions of a statement. All of them must hold.
type conditions struct {
	parts []string
	args  []any
}

// sql returns the conditions and their arguments.
func (c *conditions) sql() (string, []any) {
	if len(c.parts) == 0 {
		return "1 = 1", nil
	}
	return strings.Join(c.parts, " AND "), c.args
}

// add adds a condition. Texts in its arguments come from callers, and are written as they are in the database.
func (c *conditions) add(part string, args ...any) {
	c.parts = append(c.parts, part)
	for _, arg := range args {
		if text, ok := arg.(string); ok {
			arg = storable(text)
		}
		c.args = append(c.args, arg)
	}
}

// equal adds nothing for an empty value.
func (c *conditions) equal(column, value string) {
	if value != "" {
		c.add(column+" = ?", value)
	}
}

func (c *conditions) oneOf(column string, values []string) {
	marks := make([]string, len(values))
	args := make([]any, len(values))
	for i, value := range values {
		marks[i], args[i] = "?", value
	}
	c.add(column+" IN ("+strings.Join(append(marks, "NULL"), ", ")+")", args...)
}

// types selects types, which are exact, or end in * for all that begin so.
func (c *conditions) types(types []string) {
	var parts []string
	var args []any
	for _, t := range types {
		if prefix, ok := strings.CutSuffix(t, "*"); ok {
			parts, args = append(parts, "type LIKE ? ESCAPE '!'"), append(args, like.Replace(prefix)+"%")
		} else {
			parts, args = append(parts, "type = ?"), append(args, t)
		}
	}
	if len(parts) > 0 {
		c.add("("+strings.Join(parts, " OR ")+")", args...)
	}
}

// during selects times from since on and before until. A zero time is no bound.
func (c *conditions) during(since, until time.Time) {
	if !since.IsZero() {
		c.add("time >= ?", since.UnixMicro())
	}
	if !until.IsZero() {
		c.add("time < ?", until.UnixMicro())
	}
}

// mention selects rows with a text in one of the columns. Case is ignored.
func (c *conditions) mention(text string, columns ...string) {
	if text == "" {
		return
	}
	var parts []string
	var args []any
	for _, spelling := range spellings(text) {
		for _, column := range columns {
			parts, args = append(parts, "LOWER("+column+") LIKE ? ESCAPE '!'"), append(args, "%"+like.Replace(spelling)+"%")
		}
	}
	c.add("("+strings.Join(parts, " OR ")+")", args...)
}

// spellings returns what a text may be in LOWER of a column: SQLite, and PostgreSQL with the locale C, lower only the letters of ASCII, and
// data is JSON, in which & is \u0026.
func spellings(text string) []string {
	all := []string{strings.ToLower(text)}
	quoted, _ := json.Marshal(text) // a string is always encoded
	for _, s := range []string{lowerASCII(text), lowerASCII(strings.ToUpper(text)), strings.ToLower(string(quoted[1 : len(quoted)-1]))} {
		if !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	return all
}

func lowerASCII(text string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			r += 'a' - 'A'
		}
		return r
	}, text)
}

var like = strings.NewReplacer("!", "!!", "%", "!%", "_", "!_")

// Orders are the columns that events and dead letters can be sorted by.
var Orders = []string{"sequence", "time", "type", "name"}

// Order is the order of rows, and the row after which a page begins. Its zero value is the newest first.
type Order struct {
	// By is one of Orders, or empty for sequence.
	By        string
	Ascending bool
	// After is the sequence of the last row of the previous page; 0 is the first page. AfterValue is the value of By in that row.
	After      int64
	AfterValue any
}

// page adds the condition of a page, and returns its ORDER BY.
func (c *conditions) page(o Order) string {
	direction, beyond := " DESC", "<"
	if o.Ascending {
		direction, beyond = " ASC", ">"
	}
	if o.By == "" || o.By == "sequence" {
		if o.After > 0 {
			c.add("seq "+beyond+" ?", o.After)
		}
		return " ORDER BY seq" + direction
	}
	if o.After > 0 {
		c.add("("+o.By+" "+beyond+" ? OR ("+o.By+" = ? AND seq "+beyond+" ?))", o.AfterValue, o.AfterValue, o.After)
	}
	return " ORDER BY " + o.By + direction + ", seq" + direction
}
