package attack

import (
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/vitistack/stack/tests/stand/engine"
	"github.com/vitistack/stack/tests/stand/feed"
)

// site is the whole stack with two teams, which NetworkPools bind.
type site struct {
	*testing.T
	*engine.Engine
	tenant dynamic.Interface
}

// pools are the NetworkPools of two teams: team a by its name, team b by a label, and one VLAN for
// both.
const pools = `apiVersion: vitistack.io/v1alpha1
kind: NetworkPool
metadata: {name: team-a}
spec: {allowedNamespaces: {list: [team-a]}, providers: [manual], vlans: ["100-199"], prefixes: [10.20.0.0/16], bridges: [br-a]}
---
apiVersion: vitistack.io/v1alpha1
kind: NetworkPool
metadata: {name: team-b}
spec: {allowedNamespaces: {selector: {matchLabels: {team: b}}}, vlans: ["300-399"], prefixes: [10.30.0.0/16], bridges: [br-mgmt]}
---
apiVersion: vitistack.io/v1alpha1
kind: NetworkPool
metadata: {name: both}
spec: {allowedNamespaces: {list: [team-a, team-b]}, providers: [manual], vlans: ["500"], prefixes: [10.50.0.0/16]}
`

const tenantRole = `apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: tenant}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: vitistack-edit}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: tenant-of-a}]
`

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{T: t, Engine: engine.Start(t)}
	s.Delete(engine.NetworkPools, "", "tour")
	s.Apply("", pools)
	s.CreateNamespace("team-b")
	_, err := s.Client.Resource(engine.Namespaces).Patch(t.Context(), "team-b", types.MergePatchType, []byte(`{"metadata":{"labels":{"team":"b"}}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.Apply("team-a", tenantRole)
	config, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	config.Impersonate = rest.ImpersonationConfig{UserName: "tenant-of-a"}
	if s.tenant, err = dynamic.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	return s
}

// makes creates an object in the tenant's namespace, as the tenant. It retries, because a role binding
// takes effect after a moment.
func (s *site) makes(resource schema.GroupVersionResource, text string) {
	s.Helper()
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &object.Object); err != nil {
		s.Fatal(err)
	}
	feed.Until(s.T, "the tenant creates "+object.GetKind()+" "+object.GetName(), func() (bool, string) {
		_, err := s.tenant.Resource(resource).Namespace("team-a").Create(s.Context(), object.DeepCopy(), metav1.CreateOptions{})
		if err != nil && !apierrors.IsForbidden(err) {
			s.Fatal(err)
		}
		return err == nil, fmt.Sprint(err)
	})
}

// becomes waits until the condition Ready of the tenant's object has a reason, and returns its
// message.
func (s *site) becomes(resource schema.GroupVersionResource, name, reason string) (message string) {
	s.Helper()
	feed.Until(s.T, name+" is "+reason, func() (bool, string) {
		object := s.Get(resource, "team-a", name)
		if object == nil {
			return false, "it is deleted"
		}
		conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
		for _, c := range conditions {
			if c := c.(map[string]any); c["type"] == "Ready" {
				message, _ = c["message"].(string)
				return c["reason"] == reason, fmt.Sprint(c["reason"], ": ", message)
			}
		}
		return false, "no condition Ready"
	})
	return message
}

const networkHead = "{apiVersion: vitistack.io/v1alpha2, kind: NetworkNamespace, metadata: {name: %s}, spec: {datacenterIdentifier: %s, networkProvisioning: %s, ipAllocation: {type: static}}}"

// TestNetworksOfOthers has a tenant with the role vitistack-edit request networks that no pool of theirs allows.
func TestNetworksOfOthers(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	manual := func(prefix string, vlan int) string {
		return fmt.Sprintf("{provider: manual, manual: {ipv4CIDR: %s, vlanId: %d}}", prefix, vlan)
	}
	s.Apply("team-b", fmt.Sprintf(networkHead, "victim", "no-west-az1", manual("10.30.1.0/24", 300)))
	s.Apply("team-b", fmt.Sprintf(networkHead, "first", "no-west-az1", manual("10.50.1.0/24", 500)))
	s.UntilPhase(engine.NetworkNamespaces, "team-b", "victim", "Ready")
	s.UntilPhase(engine.NetworkNamespaces, "team-b", "first", "Ready")

	for name, tc := range map[string]struct{ reason, datacenter, provisioning, refused string }{
		"same-segment": {"the segment of another team in another data centre", "se-east-az9", manual("10.30.1.0/24", 300), "NotInPool"},
		"same-vlan":    {"a prefix of their own in the VLAN of another team", "no-west-az1", manual("10.20.1.0/24", 300), "NotInPool"},
		"shared-vlan":  {"another prefix in a VLAN that both teams may use, and the other one has", "no-west-az1", manual("10.50.2.0/24", 500), "SegmentOverlap"},
		"prefix":       {"a prefix of another team in a VLAN of their own", "no-west-az1", manual("10.30.2.0/24", 100), "NotInPool"},
		"untagged":     {"the network of the hosts", "no-west-az1", manual("10.20.2.0/24", 0), "NotInPool"},
		"nam":          {"a provider for other teams", "no-west-az1", "{provider: nam}", "NotInPool"},
		"netbox":       {"a provider for other teams", "no-west-az1", "{provider: netbox, netbox: {role: tenants, vlanGroup: tenants}}", "NotInPool"},
		"ipam":         {"a provider for other teams", "no-west-az1", "{provider: tour-ipam}", "NotInPool"},
	} {
		s.makes(engine.NetworkNamespaces, fmt.Sprintf(networkHead, name, tc.datacenter, tc.provisioning))
		message := s.becomes(engine.NetworkNamespaces, name, tc.refused)
		if prefix, _, _ := unstructured.NestedString(s.Get(engine.NetworkNamespaces, "team-a", name).Object, "status", "ipv4Prefix"); prefix != "" {
			t.Errorf("%s: the tenant has %s (%s)", tc.reason, prefix, message)
		}
		if tc.refused == "NotInPool" && (!strings.Contains(message, "team-a: providers manual; VLANs 100-199; prefixes 10.20.0.0/16") || strings.Contains(message, "team-b")) {
			t.Errorf("%s: %q has to name what the namespace may use, and nothing of other teams", tc.reason, message)
		}
	}
	s.reachForBridges(manual("10.20.9.0/24", 150))
	s.reachForPools()
}

// reachForBridges attaches the tenant's machines to bridges of others, in the tenant's own network.
func (s *site) reachForBridges(own string) {
	s.Helper()
	s.makes(engine.NetworkNamespaces, fmt.Sprintf(networkHead, "own", "no-west-az1", own))
	s.becomes(engine.NetworkNamespaces, "own", "Provisioned")
	const configuration = "{apiVersion: vitistack.io/v1alpha1, kind: NetworkConfiguration, metadata: {name: %s}, spec: {networkNamespaceName: own, %s}}"
	const machine = "{apiVersion: vitistack.io/v1alpha1, kind: Machine, metadata: {name: %s}, spec: {template: small, networks: [{name: eth0, networkName: %s}]}}"
	for name, tc := range map[string]struct{ spec, reason string }{
		"management": {"bridge: br-mgmt", "BridgeNotAllowed"},
		"trunk":      {"bridge: br-mgmt, vlan: 4000", "NetworkFailed"},
		"tagged":     {"vlan: 4000", "NetworkFailed"},
		"given":      {"bridge: br-a", "MachineRunning"},
	} {
		s.makes(engine.NetworkConfigurations, fmt.Sprintf(configuration, name, tc.spec))
		s.makes(engine.Machines, fmt.Sprintf(machine, name, name))
		message := s.becomes(engine.Machines, name, tc.reason)
		if made := s.Get(engine.VirtualMachines, "team-a", name); (made != nil) != (tc.reason == "MachineRunning") {
			s.Errorf("%s: %s: virtual machine %v", tc.spec, message, made)
		}
	}
}

// reachForPools has the tenant extend their own pools.
func (s *site) reachForPools() {
	s.Helper()
	pool := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte("{apiVersion: vitistack.io/v1alpha1, kind: NetworkPool, metadata: {name: mine}, spec: {}}"), &pool.Object); err != nil {
		s.Fatal(err)
	}
	ctx, patch := s.Context(), func(resource dynamic.ResourceInterface, name, patch string, subresource ...string) error {
		_, err := resource.Patch(s.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresource...)
		return err
	}
	_, created := s.tenant.Resource(engine.NetworkPools).Create(ctx, pool, metav1.CreateOptions{})
	networks := s.tenant.Resource(engine.NetworkNamespaces).Namespace("team-a")
	for reason, err := range map[string]error{
		"a pool of their own":             created,
		"more in the pool that they have": patch(s.tenant.Resource(engine.NetworkPools), "team-a", `{"spec":{"vlans":null}}`),
		"no pool at all":                  s.tenant.Resource(engine.NetworkPools).Delete(ctx, "team-b", metav1.DeleteOptions{}),
		"the label of another team":       patch(s.tenant.Resource(engine.Namespaces), "team-a", `{"metadata":{"labels":{"team":"b"}}}`),
		"a segment in the status":         patch(networks, "own", `{"status":{"vlanId":300}}`, "status"),
	} {
		if !apierrors.IsForbidden(err) {
			s.Errorf("the tenant can have %s: %v", reason, err)
		}
	}
}
