package bench

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vitistack/stack/tests/stand/engine"
)

// resource is a kind as the API server names it.
type resource = schema.GroupVersionResource

// progress prints the progress of a benchmark.
func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%s  %s\n", time.Now().Format(time.TimeOnly), fmt.Sprintf(format, args...))
}

// clockTick is the unit of the times in /proc/PID/stat (proc_pid_stat(5)).
const clockTick = 10 * time.Millisecond

// usage has the resources that a process has used.
type usage struct {
	cpu time.Duration
	// rss is its maximum resident memory, in bytes.
	rss int64
}

// usages returns the usage of each running process of the engine by name. It adds the processes of one
// function, and calls the engine itself engine.
func usages(b *testing.B, e *engine.Engine) map[string]usage {
	b.Helper()
	all := map[string]usage{"engine": usageOf(e.PID())}
	for _, p := range e.Report().Processes {
		if p.PID == 0 {
			continue
		}
		u, one := all[p.Name], usageOf(p.PID)
		all[p.Name] = usage{cpu: u.cpu + one.cpu, rss: u.rss + one.rss}
	}
	return all
}

// usageOf returns the usage of a process, or zero if it has just ended.
func usageOf(pid int) (u usage) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return usage{}
	}
	// The name may contain spaces and ends with a parenthesis. Counted from the field after it, the
	// times in user and in system mode are fields 11 and 12.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	for _, field := range fields[11:13] {
		ticks, _ := strconv.Atoi(field)
		u.cpu += time.Duration(ticks) * clockTick
	}
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, peak, _ := strings.Cut(string(status), "VmHWM:")
	if fields := strings.Fields(peak); len(fields) > 0 {
		kib, _ := strconv.ParseInt(fields[0], 10, 64)
		u.rss = kib << 10
	}
	return u
}

// explain logs with -v which processes and requests cause the cost of each of n objects since a time,
// the most expensive first.
func explain(b *testing.B, e *engine.Engine, since time.Time, before map[string]usage, n int) {
	b.Helper()
	if !testing.Verbose() {
		return
	}
	var text strings.Builder
	after := usages(b, e)
	for _, name := range slices.SortedFunc(maps.Keys(after), func(x, y string) int { return cmp.Compare(after[y].cpu, after[x].cpu) }) {
		fmt.Fprintf(&text, "%8.2f ms  %6.1f MB  %s\n", milliseconds(after[name].cpu-before[name].cpu)/float64(n), float64(after[name].rss)/1e6, name)
	}
	b.Logf("for each of %d:\n%s", n, text.String())
	explainRequests(b, e, since, n)
}

// explainRequests logs with -v the requests for each of n objects since a time, the most frequent first, with the time that the
// API server takes for one, and the deliveries of each function.
func explainRequests(b *testing.B, e *engine.Engine, since time.Time, n int) {
	b.Helper()
	if !testing.Verbose() {
		return
	}
	requests, took := map[string]int{}, map[string]time.Duration{}
	for _, r := range e.Requests(since) {
		name := fmt.Sprintf("%-18s %-6s %s", cmp.Or(r.Function(), r.User.Username), r.Verb, r.Resource())
		requests[name]++
		took[name] += r.Took()
	}
	var text strings.Builder
	for _, name := range slices.SortedFunc(maps.Keys(requests), func(x, y string) int { return cmp.Compare(requests[y], requests[x]) }) {
		if each := float64(requests[name]) / float64(n); each >= 0.01 {
			fmt.Fprintf(&text, "%8.2f  %8.2f ms  %s\n", each, milliseconds(took[name])/float64(requests[name]), name)
		}
	}
	fmt.Fprintf(&text, "\n%-18s %10s %10s %10s %10s %10s\n", "deliveries", "all", "idle", "free", "retried", "own write")
	counts := deliveriesSince(b, e, since)
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		d, each := counts[name], func(count int) float64 { return float64(count) / float64(n) }
		fmt.Fprintf(&text, "%-18s %10.2f %10.2f %10.2f %10.2f %10.2f\n", name, each(d.all), each(d.idle), each(d.free), each(d.redelivered), each(d.own))
	}
	b.Logf("requests for each of %d:\n%s", n, text.String())
}
