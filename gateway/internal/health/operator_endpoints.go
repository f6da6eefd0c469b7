package health

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/vitistack/stack/events/outbound"
	"github.com/vitistack/stack/gateway/internal/config"
	"github.com/vitistack/stack/gateway/internal/inventory"
)

// Bounds of a probe.
const (
	probeTimeout = 10 * time.Second
	maxAnswer    = 64 << 10
)

// errUnreachable is the message of an operator without a valid response.
var errUnreachable = errors.New("the operator does not answer")

// OperatorProber requests the status of operators that have an endpoint of their own.
type OperatorProber struct {
	Store     *inventory.Store
	Operators map[string]*config.Operator
	Log       *slog.Logger
}

// Run probes each operator with an endpoint at its interval, until ctx ends.
func (p *OperatorProber) Run(ctx context.Context) {
	var running sync.WaitGroup
	for name, settings := range p.Operators {
		if settings.Endpoint != "" {
			running.Go(func() { p.run(ctx, name, *settings) })
		}
	}
	running.Wait()
}

func (p *OperatorProber) run(ctx context.Context, name string, o config.Operator) {
	log := p.Log.With("operator", name)
	endpoint := withNamespace(o.Endpoint, o.Namespace)
	ticker := time.NewTicker(o.SyncInterval)
	defer ticker.Stop()
	last := ""
	for {
		found, err := probe(ctx, endpoint)
		if ctx.Err() != nil {
			return
		}
		switch {
		case err != nil && last != found.Status:
			log.Warn("Operator connection timeout, retrying", "error", err.Error())
		case err == nil && last != found.Status:
			log.Info("Successfully synchronized operator data", "status", found.Status)
		}
		last = found.Status
		p.Store.SetProbe(name, found)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// withNamespace completes a host without a dot, which is a Service of that
// namespace.
func withNamespace(endpoint, namespace string) string {
	u, err := url.Parse(endpoint)
	if err != nil || namespace == "" || u.Hostname() == "localhost" || strings.ContainsAny(u.Hostname(), ".:") {
		return endpoint
	}
	u.Host = strings.Replace(u.Host, u.Hostname(), u.Hostname()+"."+namespace, 1)
	return u.String()
}

// probe requests the operator status model at /status of an operator. If the operator has no such path, probe requests /healthz.
func probe(ctx context.Context, endpoint string) (inventory.Probe, error) {
	p := inventory.Probe{Endpoint: endpoint, Status: inventory.Unreachable}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	code, body, err := fetch(ctx, strings.TrimSuffix(endpoint, "/")+"/status")
	if err == nil && (code == http.StatusNotFound || code == http.StatusMethodNotAllowed) {
		code, body, err = fetch(ctx, strings.TrimSuffix(endpoint, "/")+"/healthz")
	}
	if err != nil {
		p.Message = errUnreachable.Error()
		return p, err
	}
	p.Seen = time.Now().UTC()
	if code/100 != 2 {
		p.Status, p.Message = inventory.Unhealthy, fmt.Sprintf("it answers %d", code)
		return p, nil
	}
	p.Status = inventory.Healthy
	var model inventory.OperatorModel
	if err := json.Unmarshal(body, &model); err == nil {
		p.Version, p.Capabilities = model.Version, model.Capabilities
		switch model.Status {
		case inventory.Healthy, inventory.Degraded, inventory.Unhealthy, inventory.Unreachable:
			p.Status = model.Status
		}
	}
	if p.Status != inventory.Healthy {
		p.Message = "it says that it is " + p.Status
	}
	return p, nil
}

// client follows no redirects.
var client = &http.Client{CheckRedirect: outbound.Stay}

func fetch(ctx context.Context, address string) (int, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return 0, nil, fmt.Errorf("probe operator: %w", err)
	}
	res, err := client.Do(req)
	if err != nil {
		return 0, nil, fmt.Errorf("probe operator: %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return 0, nil, fmt.Errorf("probe operator: %w", err)
	}
	return res.StatusCode, body, nil
}
