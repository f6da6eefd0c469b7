package app

import (
	"os"
	"path/filepath"
	"testing"
)

func TestHeapLimit(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, file, content string
		want                  int64
	}{
		"None":      {reason: "there is no cgroup", file: "other", want: 0},
		"Unlimited": {reason: "the cgroup has no limit", file: "memory.max", content: "max\n", want: 0},
		"Limited":   {reason: "a tenth is left", file: "memory.max", content: "536870912\n", want: 483183819},
		"Older":     {reason: "cgroups of version 1 say it elsewhere", file: "memory/memory.limit_in_bytes", content: "1000\n", want: 900},
		"Nonsense":  {reason: "what cannot be read is no limit", file: "memory.max", content: "lots", want: 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), tc.file)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(tc.content), 0o600); err != nil {
				t.Fatal(err)
			}
			root := path[:len(path)-len(tc.file)]
			if got := heapLimit(root); got != tc.want {
				t.Errorf("%s: %d, want %d", tc.reason, got, tc.want)
			}
		})
	}
}
