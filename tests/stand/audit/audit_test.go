package audit

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestReadAudit reads a log with the long line of a large request, the rest of a killed API server, and an unfinished line.
func TestReadAudit(t *testing.T) {
	t.Parallel()
	long := `{"verb": "create", "stage": "ResponseComplete", "requestObject": "` + strings.Repeat("x", 4<<20) + `"}`
	path := filepath.Join(t.TempDir(), "audit.log")
	text := long + "\n" + `{"verb": "ge{"verb": "list", "stage": "ResponseComplete"}` + "\n" + `{"verb": "patch", "stage": "ResponseComplete"}` + "\n" + `{"verb": "del`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	requests, err := readLog(path, time.Time{})
	if err != nil || len(requests) != 2 || requests[0].Verb != "create" || requests[1].Verb != "patch" {
		t.Errorf("got %d requests, and %v, want create and patch", len(requests), err)
	}
}
