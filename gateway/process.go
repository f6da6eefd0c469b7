package main

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"github.com/vitistack/stack/gateway/telemetry"
)

// processMeters adds what the process itself uses.
func processMeters(r *telemetry.Registry, started float64) {
	gauge := func(name, help string, value func() float64) {
		r.Collected(telemetry.Gauge, name, help, nil, func(add func(float64, ...string)) { add(value()) })
	}
	gauge("process_start_time_seconds", "Start of the process in seconds since 1970", func() float64 { return started })
	gauge("process_resident_memory_bytes", "Memory of the process that is in use", residentMemory)
	gauge("process_open_fds", "Open files and connections", openFiles)
	gauge("go_goroutines", "Goroutines", func() float64 { return float64(runtime.NumGoroutine()) })
	r.Collected(telemetry.Counter, "process_cpu_seconds_total", "CPU time that the process has used", nil, func(add func(float64, ...string)) {
		var usage syscall.Rusage
		if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) == nil {
			add(float64(usage.Utime.Sec+usage.Stime.Sec) + float64(usage.Utime.Usec+usage.Stime.Usec)/1e6)
		}
	})
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
