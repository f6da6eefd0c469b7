package inventory

import (
	"strings"
	"time"
)

// OperatorModel is an operator in the API.
type OperatorModel struct {
	Operator     string            `json:"operator"`
	Version      string            `json:"version"`
	Status       string            `json:"status"`
	LastSeen     time.Time         `json:"lastSeen"`
	Resources    OperatorResources `json:"resources"`
	Capabilities []string          `json:"capabilities"`
	Endpoints    OperatorEndpoints `json:"endpoints"`
}

// OperatorResources counts the resources of an operator.
type OperatorResources struct {
	Total   int `json:"total"`
	Healthy int `json:"healthy"`
	Failed  int `json:"failed"`
	Orphans int `json:"orphans,omitempty"`
}

// OperatorEndpoints are an operator's own addresses, or empty.
type OperatorEndpoints struct {
	API     string `json:"api"`
	Metrics string `json:"metrics"`
	Health  string `json:"health"`
}

func (o *Operator) model() OperatorModel {
	m := OperatorModel{
		Operator: o.Name, Version: o.Version, Status: o.Status, LastSeen: o.LastSeen,
		Resources:    OperatorResources{Total: o.Total, Healthy: o.Healthy, Failed: o.Failed, Orphans: o.Orphans},
		Capabilities: o.Capabilities,
	}
	if o.Endpoint != "" {
		base := strings.TrimSuffix(o.Endpoint, "/")
		m.Endpoints = OperatorEndpoints{API: base, Metrics: base + "/metrics", Health: base + "/healthz"}
	}
	return m
}

// operatorJSON is an operator in the stream.
type operatorJSON struct {
	head
	Version      string            `json:"version"`
	LastSeen     time.Time         `json:"lastSeen"`
	Resources    OperatorResources `json:"resources"`
	Capabilities []string          `json:"capabilities"`
	Endpoints    OperatorEndpoints `json:"endpoints"`
}

// operatorChanges returns the changed items of the operators. now is when the status of an operator changes that no source dates.
func operatorChanges(last *Collection, all []*Operator, now time.Time) map[string]*Item {
	changes := map[string]*Item{}
	for _, i := range last.Items {
		changes[i.ID] = nil
	}
	for _, o := range all {
		i := &Item{
			Topic: TopicOperators, ID: o.Name, Name: o.Name, Status: o.Status, Phase: o.Status,
			Readiness: Readiness{Ready: o.Status == Healthy, Message: o.Message}, Updated: o.LastSeen, facts: o,
		}
		if !i.Readiness.Ready {
			i.Readiness.Reason = strings.ToUpper(o.Status[:1]) + o.Status[1:]
		}
		if i.Readiness.Since = o.Since; o.Since.IsZero() {
			i.Readiness.Since = now
			if old := last.Find(o.Name); old != nil && old.Status == i.Status {
				i.Readiness.Since = old.Readiness.Since
			}
		}
		m := o.model()
		i.List = encode(m)
		i.JSON = encode(operatorJSON{
			head: i.head(), Version: m.Version, LastSeen: m.LastSeen, Resources: m.Resources,
			Capabilities: m.Capabilities, Endpoints: m.Endpoints,
		})
		changes[o.Name] = i
	}
	return changes
}
