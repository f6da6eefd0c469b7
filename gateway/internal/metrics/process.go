package metrics

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

// addProcess declares the metrics of the process. WriteProcessMetrics of VictoriaMetrics is not used, because it writes no HELP and
// adds dozens of other series.
func addProcess(r *Registry, started float64) {
	gauge := func(name, help string, value func() float64) {
		r.Collected(Gauge, name, help, nil, func(add func(float64, ...string)) { add(value()) })
	}
	gauge("process_start_time_seconds", "Start of the process in seconds since 1970", func() float64 { return started })
	gauge("process_resident_memory_bytes", "Memory of the process that is in use", residentMemory)
	gauge("process_open_fds", "Open files and connections", openFiles)
	gauge("go_goroutines", "Goroutines", func() float64 { return float64(runtime.NumGoroutine()) })
	r.Collected(Counter, "process_cpu_seconds_total", "CPU time that the process has used", nil, func(add func(float64, ...string)) {
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
