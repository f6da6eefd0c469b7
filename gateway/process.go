package main

import (
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"

	"github.com/vitistack/stack/gateway/internal/metrics"
)

// processMeters adds what the process itself uses.
func processMeters(r *metrics.Registry, started float64) {
	gauge := func(name, help string, value func() float64) {
		r.Collected(metrics.Gauge, name, help, nil, func(add func(float64, ...string)) { add(value()) })
	}
	gauge("process_start_time_seconds", "Start of the process in seconds since 1970", func() float64 { return started })
	gauge("process_resident_memory_bytes", "Memory of the process that is in use", residentMemory)
	gauge("process_open_fds", "Open files and connections", openFiles)
	gauge("go_goroutines", "Goroutines", func() float64 { return float64(runtime.NumGoroutine()) })
	r.Collected(metrics.Counter, "process_cpu_seconds_total", "CPU time that the process has used", nil, func(add func(float64, ...string)) {
		var usage syscall.Rusage
		if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) == nil {
			add(float64(usage.Utime.Sec+usage.Stime.Sec) + float64(usage.Utime.Usec+usage.Stime.Usec)/1e6)
		}
	})
}

// limitMemory has Go's collector work harder as the process nears the memory of its
// container, where it would be killed. GOMEMLIMIT stands over it.
func limitMemory(cgroup string) {
	if limit := heapLimit(cgroup); limit > 0 && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(limit)
	}
}

// heapLimit is 90 % of what a cgroup may use, which leaves the rest for what Go does
// not count. 0 means that there is no limit.
func heapLimit(cgroup string) int64 {
	for _, file := range []string{"memory.max", "memory/memory.limit_in_bytes"} {
		content, err := os.ReadFile(filepath.Join(cgroup, file))
		if err != nil {
			continue
		}
		limit, err := strconv.ParseInt(strings.TrimSpace(string(content)), 10, 64)
		if err == nil && limit > 0 {
			return limit / 10 * 9
		}
	}
	return 0
}

// residentMemory reads /proc; where there is none it is 0.
func residentMemory() float64 {
	content, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(content))
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseFloat(fields[1], 64)
	if err != nil {
		return 0
	}
	return pages * float64(os.Getpagesize())
}

func openFiles() float64 {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return float64(len(entries))
}
