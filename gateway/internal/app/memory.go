package app

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
)

// limitMemory makes the garbage collector keep the process below the memory limit of its container. GOMEMLIMIT overrides it.
func limitMemory(cgroup string) {
	if limit := heapLimit(cgroup); limit > 0 && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(limit)
	}
}

// heapLimit returns 90 % of the memory limit of a cgroup, which leaves the rest for memory that Go does not count. 0 means that
// there is no limit.
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
