package openapi_test

import (
	"bytes"
	"testing"

	"github.com/vitistack/stack/gateway/internal/openapi"
	"github.com/vitistack/stack/gateway/internal/openapi/render"
)

func TestPageIsUpToDate(t *testing.T) {
	t.Parallel()
	want, err := render.HTML(openapi.YAML())
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want, openapi.HTML()) {
		t.Error("docs.html differs from openapi.yaml: run go generate ./gateway/internal/openapi")
	}
}
