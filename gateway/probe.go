package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/vitistack/stack/events/outbound"
	"github.com/vitistack/stack/gateway/internal/config"
	"github.com/vitistack/stack/gateway/internal/inventory"
)

// Bounds of asking an operator.
const (
	probeTimeout = 10 * time.Second
	mostProbed   = 64 << 10
)

// errUnreachable is an operator that does not answer, or not in a way that can be
// understood.
var errUnreachable = errors.New("the operator does not answer")

// probeOperators asks the operators that have an endpoint of their own for their
// status, until ctx ends.
func (g *gateway) probeOperators(ctx context.Context) {
	o := g.config.Operators
	var running sync.WaitGroup
	for name, settings := range map[string]config.Operator{
		inventory.OperatorProxmox: o.Proxmox, inventory.OperatorTalos: o.Talos, inventory.OperatorKea: o.Kea, inventory.OperatorKubeVirt: o.KubeVirt,
	} {
		if settings.Endpoint != "" {
			running.Go(func() { g.probeOperator(ctx, name, settings) })
		}
	}
	running.Wait()
}

func (g *gateway) probeOperator(ctx context.Context, name string, o config.Operator) {
	log := g.log.With("component", "operators", "operator", name)
	endpoint := withNamespace(o.Endpoint, o.Namespace)
	ticker := time.NewTicker(o.SyncInterval)
	defer ticker.Stop()
	last := ""
	for {
		p, err := probe(ctx, endpoint)
		if ctx.Err() != nil {
			return
		}
		switch {
		case err != nil && last != p.Status:
			log.Warn("Operator connection timeout, retrying", "error", err.Error())
		case err == nil && last != p.Status:
			log.Info("Successfully synchronized operator data", "status", p.Status)
		}
		last = p.Status
		g.store.SetProbe(name, p)
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

// probe asks an operator at /status for the operator status model. One that has
// no such path is asked at /healthz whether it is well.
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

// staying asks who it is told to ask, and follows nobody elsewhere.
var staying = &http.Client{CheckRedirect: outbound.Stay}

func fetch(ctx context.Context, address string) (int, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return 0, nil, fmt.Errorf("ask operator: %w", err)
	}
	res, err := staying.Do(req)
	if err != nil {
		return 0, nil, fmt.Errorf("ask operator: %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(res.Body, mostProbed))
	if err != nil {
		return 0, nil, fmt.Errorf("ask operator: %w", err)
	}
	return res.StatusCode, body, nil
}
