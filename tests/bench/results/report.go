package main

import (
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// figures are the results of one benchmark by unit.
type figures map[string]float64

// report has the results of all benchmarks.
type report struct {
	commit  string
	machine []string
	figures map[string]figures
	runs    []commandRun
}

// commandRun is one run of go test.
type commandRun struct{ command, commit, load, took string }

var (
	cores    = regexp.MustCompile(`-\d+$`)
	fieldsOf = regexp.MustCompile(`(?m)^(command|load average|took): (.*)$`)
)

// add parses the output of go test: a line for each benchmark, with its name, the number of rounds,
// and values, each followed by its unit.
func (r *report) add(text, commit string) {
	run := map[string]string{}
	for _, field := range fieldsOf.FindAllStringSubmatch(text, -1) {
		run[field[1]] = field[2]
	}
	r.runs = append(r.runs, commandRun{run["command"], commit, run["load average"], run["took"]})
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) < 4 || !strings.HasPrefix(words[0], "Benchmark") {
			continue
		}
		measured := figures{}
		for i := 2; i+1 < len(words); i += 2 {
			if value, err := strconv.ParseFloat(words[i], 64); err == nil {
				measured[words[i+1]] = value
			}
		}
		r.figures[strings.TrimPrefix(cores.ReplaceAllString(words[0], ""), "Benchmark")] = measured
	}
}

// get formats a figure, or a dash if it is missing.
func (r *report) get(benchmark, unit string) string {
	value, ok := r.figures[benchmark][unit]
	if !ok {
		return "–"
	}
	return number(value)
}

// number formats a value with three digits, which is more than the accuracy of a measurement.
func number(value float64) string {
	if value >= 100 {
		return strconv.FormatFloat(value, 'f', 0, 64)
	}
	return strconv.FormatFloat(value, 'g', 3, 64)
}

// names returns the sub-benchmarks of a benchmark, sorted by name.
func (r *report) names(benchmark string) (names []string) {
	for name := range r.figures {
		if below, ok := strings.CutPrefix(name, benchmark+"/"); ok {
			names = append(names, below)
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		x, _ := strconv.Atoi(a)
		y, _ := strconv.Atoi(b)
		if x != y {
			return x - y
		}
		return strings.Compare(a, b)
	})
	return names
}

func (r *report) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Results\n\n`make bench` writes this page from what the benchmarks in this folder print; no figure in it is written by hand. "+
		"Other pages have the times [on a real node with Knative Serving](../node/RESULTS.md), and [of clusters of real Talos nodes](../talos/RESULTS.md).\n\n")
	fmt.Fprintf(&b, "Commit `%s`, on %s. A result of an earlier commit is marked in the table of commands at the end.\n\n", r.commit, strings.Join(r.machine, "; "))
	if load := r.loadBefore(); load > float64(runtime.NumCPU()) {
		fmt.Fprintf(&b, "> The machine was busy: its load average was %s before the first benchmark. Take counts and ratios from here, and no times.\n\n", number(load))
	}
	for _, part := range []func(*strings.Builder){r.clusters, r.layers, r.machines, r.processes, r.starts, r.idle, r.gateway, r.stock, r.load, r.operators, r.commands} {
		part(&b)
	}
	return b.String()
}

// loadBefore returns the load average before the first benchmark. The load before the others is caused
// by the benchmarks themselves.
func (r *report) loadBefore() float64 {
	if len(r.runs) == 0 {
		return 0
	}
	load, err := strconv.ParseFloat(r.runs[0].load, 64)
	if err != nil {
		return 0
	}
	return load
}

// table formats a table of the sub-benchmarks of a benchmark, with a column for each unit.
func (r *report) table(b *strings.Builder, first, benchmark string, columns [][2]string) {
	heads, rules := []string{first}, []string{"---"}
	for _, column := range columns {
		heads, rules = append(heads, column[0]), append(rules, "---:")
	}
	fmt.Fprintf(b, "| %s |\n| %s |\n", strings.Join(heads, " | "), strings.Join(rules, " | "))
	for _, name := range r.names(benchmark) {
		cells := []string{name}
		for _, column := range columns {
			cells = append(cells, r.get(benchmark+"/"+name, column[1]))
		}
		fmt.Fprintf(b, "| %s |\n", strings.Join(cells, " | "))
	}
	b.WriteString("\n")
}

// list formats a table of single figures: description, benchmark, unit and text after it.
func (r *report) list(b *strings.Builder, rows ...[4]string) {
	b.WriteString("| | |\n| --- | ---: |\n")
	for _, row := range rows {
		fmt.Fprintf(b, "| %s | %s%s |\n", row[0], r.get(row[1], row[2]), row[3])
	}
	b.WriteString("\n")
}

// ordered returns the units of a benchmark with a suffix, without the suffix, the largest figure
// first.
func (r *report) ordered(benchmark, suffix string) (names []string) {
	f := r.figures[benchmark]
	for unit := range f {
		if name, ok := strings.CutSuffix(unit, suffix); ok {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		if f[a+suffix] != f[b+suffix] {
			if f[a+suffix] > f[b+suffix] {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	return names
}
