package handlers

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/gateway/internal/httpbody"
	"github.com/vitistack/stack/gateway/internal/inventory"
	"github.com/vitistack/stack/gateway/internal/response"
)

// clusterModel is a cluster in the API.
type clusterModel struct {
	ID         string            `json:"id"`
	Name       string            `json:"name"`
	Namespace  string            `json:"namespace"`
	Type       string            `json:"type"`
	Status     string            `json:"status"`
	Nodes      clusterNodes      `json:"nodes"`
	Networking clusterNetworking `json:"networking"`
	Operators  clusterOperators  `json:"operators"`
	Metadata   clusterMetadata   `json:"metadata"`
}

type clusterNodes struct {
	Total   int `json:"total"`
	Ready   int `json:"ready"`
	Unready int `json:"unready"`
}

type clusterNetworking struct {
	PodCIDR     string `json:"podCIDR"`
	ServiceCIDR string `json:"serviceCIDR"`
	DNSName     string `json:"dnsName"`
}

type clusterOperators struct {
	Installed []string `json:"installed"`
	Healthy   []string `json:"healthy"`
}

type clusterMetadata struct {
	CreatedAt time.Time `json:"createdAt"`
	UpdatedAt time.Time `json:"updatedAt"`
	Version   string    `json:"version"`
}

// ShowCluster serves one cluster.
func (h *Inventory) ShowCluster(c *fiber.Ctx) error {
	i, snapshot, err := h.find(c, inventory.TopicClusters)
	if err != nil {
		return err
	}
	body, err := json.Marshal(clusterModelOf(i, snapshot))
	if err != nil {
		return err
	}
	return response.Send(c, snapshot.ETag()+"-"+i.ID, fiber.MIMEApplicationJSON, httpbody.Body{Plain: body})
}

func clusterModelOf(i *inventory.Item, s *inventory.Snapshot) clusterModel {
	f := i.Object.Facts.(*inventory.Cluster)
	m := clusterModel{
		ID: i.ID, Name: i.Name, Namespace: i.Namespace, Type: i.Attribute("type"), Status: i.Status,
		Nodes:      clusterNodes{Total: f.Total, Ready: f.Ready, Unready: max(f.Total-f.Ready, 0)},
		Networking: clusterNetworking{PodCIDR: f.PodCIDR, ServiceCIDR: f.ServiceCIDR, DNSName: f.DNSName},
		Operators:  clusterOperators{Installed: inventory.UsesOf(i).Names(), Healthy: []string{}},
		Metadata:   clusterMetadata{CreatedAt: i.Created, UpdatedAt: i.Updated, Version: f.Version},
	}
	for _, name := range m.Operators.Installed {
		if o := s.Collection(inventory.TopicOperators).Find(name); o == nil || o.Status == inventory.Healthy {
			m.Operators.Healthy = append(m.Operators.Healthy, name)
		}
	}
	return m
}

// clusterParts are the objects that a cluster consists of.
type clusterParts struct {
	network   *inventory.Item
	machines  []*inventory.Item
	addresses []*inventory.Item
}

func partsOf(i *inventory.Item, s *inventory.Snapshot) clusterParts {
	b := clusterParts{network: networkOf(i, s)}
	names := map[string]bool{}
	for _, m := range s.Collection(inventory.TopicMachines).InNamespace(i.Namespace) {
		if m.Attribute("cluster") == i.Name {
			b.machines = append(b.machines, m)
			names[m.Name] = true
		}
	}
	for _, a := range s.Collection(inventory.TopicAddresses).InNamespace(i.Namespace) {
		if names[a.Attribute("machine")] || a.Attribute("cluster") == i.Name {
			b.addresses = append(b.addresses, a)
		}
	}
	return b
}

// networkOf returns the network that a cluster names, or the only network of its namespace, or nil.
func networkOf(i *inventory.Item, s *inventory.Snapshot) *inventory.Item {
	networks := s.Collection(inventory.TopicNetworks)
	if name := i.Attribute("network"); name != "" {
		return networks.FindNamed(i.Namespace, name)
	}
	if all := networks.InNamespace(i.Namespace); len(all) == 1 {
		return all[0]
	}
	return nil
}

// conditionsOf returns the conditions of an object in the order of their last transitions, without
// Reconciling and Stalled, which repeat Ready for other tools.
func conditionsOf(o *inventory.Object) []conditionJSON {
	var status struct {
		Conditions []conditionJSON `json:"conditions"`
	}
	if err := json.Unmarshal(o.Status, &status); err != nil {
		return nil
	}
	status.Conditions = slices.DeleteFunc(status.Conditions, func(c conditionJSON) bool {
		return c.Type == v1alpha1.ConditionReconciling || c.Type == v1alpha1.ConditionStalled
	})
	slices.SortStableFunc(status.Conditions, func(a, b conditionJSON) int { return a.Since.Compare(b.Since) })
	return status.Conditions
}

// conditionJSON is a condition of an object.
type conditionJSON struct {
	Type    string    `json:"type"`
	Status  string    `json:"status"`
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	Since   time.Time `json:"lastTransitionTime"`
}
