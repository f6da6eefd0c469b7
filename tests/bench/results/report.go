package main

import (
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// figures are what one benchmark has measured, by the unit.
type figures map[string]float64

// report is what is known of all benchmarks.
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

// add reads what a run of go test has printed: a line for each benchmark, with its
// name, the number of rounds, and values that are each followed by their unit.
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

// get writes a figure, and a dash where it is not measured.
func (r *report) get(benchmark, unit string) string {
	value, ok := r.figures[benchmark][unit]
	if !ok {
		return "–"
	}
	return number(value)
}

// number writes three digits, which is more than two runs agree in.
func number(value float64) string {
	if value >= 100 {
		return strconv.FormatFloat(value, 'f', 0, 64)
	}
	return strconv.FormatFloat(value, 'g', 3, 64)
}

// names are the benchmarks below another one, in the order of their names.
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
	fmt.Fprintf(&b, "# Results\n\n`make bench` writes this page from what the benchmarks in this folder print; no figure in it is written by hand.\n\n")
	fmt.Fprintf(&b, "Commit `%s`, on %s. What was measured for an earlier commit is marked in the table of commands at the end.\n\n", r.commit, strings.Join(r.machine, "; "))
	if load := r.loadBefore(); load > float64(runtime.NumCPU()) {
		fmt.Fprintf(&b, "> The machine was busy: its load average was %s before the first benchmark. Take counts and ratios from here, and no times.\n\n", number(load))
	}
	for _, part := range []func(*strings.Builder){r.clusters, r.layers, r.machines, r.processes, r.starts, r.idle, r.gateway, r.load, r.operators, r.commands} {
		part(&b)
	}
	return b.String()
}

// loadBefore is the load average before the first benchmark. What it is before the
// others comes from those that ran just then.
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

// table writes a table of benchmarks below one, with a column for each unit.
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

// list writes a table of single figures: what, benchmark, unit and what follows it.
func (r *report) list(b *strings.Builder, rows ...[4]string) {
	b.WriteString("| | |\n| --- | ---: |\n")
	for _, row := range rows {
		fmt.Fprintf(b, "| %s | %s%s |\n", row[0], r.get(row[1], row[2]), row[3])
	}
	b.WriteString("\n")
}

// ordered are the units of a benchmark that end in a suffix, without it, the largest
// figure first.
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
