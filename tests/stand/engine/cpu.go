package engine

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// clockTick is the unit of the times in /proc/PID/stat, which Linux fixes for all architectures of Go
// (proc_pid_stat(5)).
const clockTick = 10 * time.Millisecond

// FunctionCPU returns the CPU time, in user and in system mode, of all ended processes of the engine.
// These are its functions, because the servers keep running. The result is complete while no function
// runs.
func (e *Engine) FunctionCPU() time.Duration {
	e.t.Helper()
	const childrenUser, childrenSystem = 13, 14 // counted from the field after the name
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(e.process.PID()), "stat"))
	if err != nil {
		e.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	var ticks int64
	for _, i := range []int{childrenUser, childrenSystem} {
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			e.t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * clockTick
}
