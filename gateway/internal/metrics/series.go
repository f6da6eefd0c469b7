package metrics

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/vitistack/stack/apis/backend"
)

// series is a pushed series without the label instance.
type series struct {
	name string
	// labels are sorted, in the text format.
	labels string
	// le is the upper bound of a bucket.
	le string
}

// sample is the content of one line.
type sample struct {
	series
	from  string
	value float64
	gauge bool
}

// Patterns of the text format. Values of labels keep their escaped form, and must therefore be valid.
const labelPattern = `[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\]|\\[\\"n])*"`

var (
	sampleLine = regexp.MustCompile(`^([a-z0-9_]+)(?:\{((?:` + labelPattern + `,?)*)\})?\s+(\S+)`)
	labelPair  = regexp.MustCompile(labelPattern)
	// functions are the prefixes of accepted names.
	functions = regexp.MustCompile(`^(?:vitistack_function|vitistack_resync|vitistack_network_source|` + strings.Join(backendPrefixes(), "|") + `)_[a-z]`)
)

// parseType parses the comment with the TYPE of a family.
func parseType(text string) (name, kind string, ok bool) {
	fields := strings.Fields(text)
	if len(fields) != 4 || fields[0] != "#" || fields[1] != "TYPE" {
		return "", "", false
	}
	return fields[2], fields[3], true
}

// parseLine parses a line with a value.
func parseLine(text string, kinds map[string]string) (sample, bool) {
	if len(text) > maxLength || !utf8.ValidString(text) {
		return sample{}, false
	}
	m := sampleLine.FindStringSubmatch(text)
	if m == nil || !functions.MatchString(m[1]) {
		return sample{}, false
	}
	value, err := strconv.ParseFloat(m[3], 64)
	if err != nil || math.IsInf(value, 0) || math.IsNaN(value) {
		return sample{}, false
	}
	s := sample{series: series{name: m[1]}, value: value, gauge: kinds[m[1]] == Gauge}
	seen := map[string]bool{}
	var labels []string
	for _, pair := range labelPair.FindAllString(m[2], -1) {
		name, quoted, _ := strings.Cut(pair, "=")
		if seen[name] || strings.HasPrefix(name, "__") {
			return sample{}, false
		}
		seen[name] = true
		switch name {
		case "instance":
			s.from = quoted
		case "le":
			s.le = strings.Trim(quoted, `"`)
		default:
			labels = append(labels, pair)
		}
	}
	slices.Sort(labels)
	s.labels = strings.Join(labels, ",")
	return s, s.valid()
}

// valid reports whether the name and the value are possible for the kind.
func (s sample) valid() bool {
	family := s.family()
	if s.gauge {
		return family == s.name && s.le == ""
	}
	if strings.HasSuffix(s.name, "_bucket") {
		le, err := strconv.ParseFloat(s.le, 64)
		if err != nil || math.IsNaN(le) {
			return false
		}
	} else if s.le != "" {
		return false
	}
	counter := strings.HasSuffix(family, "_total")
	return s.value >= 0 && counter == (family == s.name)
}

// backendPrefixes returns the prefixes of the metrics that functions push about backends.
func backendPrefixes() []string {
	var prefixes []string
	for _, k := range backend.All() {
		if k.MetricsPrefix != "" {
			prefixes = append(prefixes, regexp.QuoteMeta(k.MetricsPrefix))
		}
	}
	return prefixes
}

func (s series) String() string {
	labels := s.labels
	if s.le != "" {
		labels = strings.TrimPrefix(labels+`,le="`+s.le+`"`, ",")
	}
	if labels == "" {
		return s.name
	}
	return s.name + "{" + labels + "}"
}

// family returns the name in HELP and TYPE of a series.
func (s series) family() string {
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		if short, ok := strings.CutSuffix(s.name, suffix); ok {
			return short
		}
	}
	return s.name
}

// compare orders series by family, and the buckets of a histogram before its sum.
func (s series) compare(other series) int {
	bound := func(s series) float64 {
		le, _ := strconv.ParseFloat(s.le, 64)
		return le
	}
	return cmp.Or(
		strings.Compare(s.family(), other.family()), strings.Compare(s.labels, other.labels),
		strings.Compare(s.name, other.name), cmp.Compare(bound(s), bound(other)), strings.Compare(s.le, other.le),
	)
}

// Write writes the pushed metrics, each family with its HELP and TYPE.
func (p *Pushed) Write(w io.Writer) {
	values, gauges := p.all()
	last := ""
	for _, s := range slices.SortedFunc(maps.Keys(values), series.compare) {
		if f := s.family(); f != last {
			_, _ = fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s %s\n", f, helpOf(f), f, kindOf(f, gauges))
			last = f
		}
		_, _ = fmt.Fprintf(w, "%s %v\n", s, values[s])
	}
}

func kindOf(family string, gauges map[string]bool) string {
	switch {
	case gauges[family]:
		return Gauge
	case strings.HasSuffix(family, "_total"):
		return Counter
	default:
		return Histogram
	}
}

const deliveriesTotal = "vitistack_function_deliveries_total"

func helpOf(family string) string {
	switch family {
	case deliveriesTotal:
		return "Events that the functions were delivered, by outcome: done, retry, failed, refused or unauthenticated"
	case "vitistack_function_delivery_duration_seconds":
		return "Time that the functions took for an event"
	default:
		return "Counted by the functions"
	}
}
