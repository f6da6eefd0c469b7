package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestReasonsAreGenerated compares reasons.js with apis/cause.
func TestReasonsAreGenerated(t *testing.T) {
	t.Parallel()
	want, err := render()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join("..", "reasons.js"))
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("gateway/internal/page/reasons.js differs from apis/cause (%v): run go generate ./gateway/internal/page", err)
	}
}
