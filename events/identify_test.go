package events

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
)

func TestIdentify(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	req := httptest.NewRequest(http.MethodPost, "/", nil)
	identify(req, file)
	if got := req.Header.Get("Authorization"); got != "" {
		t.Errorf("without a token the request says %q", got)
	}
	for _, token := range []string{"one", "two"} {
		if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		identify(req, file)
		if got := req.Header.Get("Authorization"); got != "Bearer "+token {
			t.Errorf("the request says %q, want the token %s", got, token)
		}
	}
}
