package cluster

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"k8s.io/client-go/rest"
)

// Raw returns the answer to a GET request for a path of the API server, at most limit bytes of it. An
// answer other than 200 is an error with the beginning of the answer.
func (c *Connection) Raw(ctx context.Context, path string, limit int64) ([]byte, error) {
	client, err := rest.HTTPClientFor(c.Config)
	if err != nil {
		return nil, err
	}
	base, _, err := rest.DefaultServerUrlFor(c.Config)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(base.String(), "/")+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, limit))
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %.200s", response.Status, body)
	}
	return body, nil
}
