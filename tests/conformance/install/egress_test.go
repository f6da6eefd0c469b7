package install

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
)

// private are the networks of backends whose address the chart does not know.
const private = "10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 100.64.0.0/10 fc00::/7"

// brokers has the values of each class of Broker.
var brokers = map[string]string{"MTChannelBasedBroker": "", "Kafka": "knative/variants/kafka", "NatsJetStreamBroker": "knative/variants/nats"}

// TestEgressNamesItsPeers checks that no rule lets a pod connect to any host: every rule has peers and ports, and no network of public addresses that no
// value lists.
func TestEgressNamesItsPeers(t *testing.T) {
	t.Parallel()
	h := newHelm(t, &rest.Config{})
	backends := "kea.url=http://kea.example.com:8000,nam.url=https://nam.example.com,netbox.url=https://netbox.example.com,database.existingSecret=db,redis.existingSecret=redis," +
		"gateway.env.HANDLERS_WEBHOOK_ENABLED=true,config.env.HTTPS_PROXY=http://proxy.example.com:3128"
	for class, variant := range brokers {
		ways := map[string][]*unstructured.Unstructured{
			"chart":    h.render(t, "broker.class="+class),
			"backends": h.render(t, "broker.class="+class+","+backends),
			"emptied":  h.render(t, "broker.class="+class+","+backends, emptied()...),
		}
		if variant != "" {
			ways["kustomize"] = kustomize(t, variant)
		}
		for way, objects := range ways {
			for _, policy := range policiesOf(t, objects) {
				for i, rule := range policy.Spec.Egress {
					if fault := anyHost(rule); fault != "" {
						t.Errorf("%s, %s: NetworkPolicy %s, rule %d: %s", class, way, policy.Name, i, fault)
					}
				}
			}
		}
	}
}

// emptied has arguments that list no address of any backend.
func emptied() []string {
	var args []string
	for _, value := range []string{"kea", "nam", "netbox", "proxmox", "kubevirt", "nodes", "clusters", "addons", "objectStores", "database", "redis", "webhooks", "operators", "proxy", "dns"} {
		args = append(args, "--set-json", "networkPolicy."+value+".cidrs=[]")
	}
	return args
}

// anyHost returns why a rule of egress permits any host, or an empty string.
func anyHost(rule networkingv1.NetworkPolicyEgressRule) string {
	if len(rule.To) == 0 {
		return "it names no peers, so any host is one"
	}
	for _, peer := range rule.To {
		if peer.IPBlock == nil {
			if peer.PodSelector == nil && (peer.NamespaceSelector == nil || len(peer.NamespaceSelector.MatchLabels)+len(peer.NamespaceSelector.MatchExpressions) == 0) {
				return "it selects the pods of all namespaces"
			}
			continue
		}
		prefix, err := netip.ParsePrefix(peer.IPBlock.CIDR)
		if err != nil {
			return err.Error()
		}
		if !prefix.Addr().IsPrivate() && !prefix.Addr().IsLinkLocalUnicast() && peer.IPBlock.CIDR != "100.64.0.0/10" {
			return prefix.String() + " is public"
		}
		if len(rule.Ports) == 0 {
			return "it names no ports of " + prefix.String()
		}
	}
	return ""
}

// TestEgressFollowsTheValues compares the rules of egress with the values about backends.
func TestEgressFollowsTheValues(t *testing.T) {
	t.Parallel()
	const names = "UDP/53 TCP/53 to 169.254.20.10/32 namespace:kube-system"
	const broker = "TCP/8080 TCP/8443 to namespace:knative-eventing"
	const toGateway = "TCP/9991 TCP/9992 to pods:gateway"
	const nodes, clusters = "TCP/50000 to " + private, "TCP/6443 to " + private
	tests := map[string]struct {
		reason, policy, set string
		args                []string
		want                []string
	}{
		"APIServerUnknown":  {"without a cluster, the API server is in a private network", "everybody", "", nil, []string{names, "TCP/443 TCP/6443 to " + private, broker, toGateway}},
		"APIServer":         {"the value lists it", "everybody", "networkPolicy.apiServer.cidrs={192.0.2.0/29},networkPolicy.apiServer.ports={8443}", nil, []string{names, "TCP/8443 to 192.0.2.0/29", broker, toGateway}},
		"Eventing":          {"Knative is in another namespace", "everybody", "networkPolicy.eventingNamespace=events,networkPolicy.apiServer.cidrs={192.0.2.1/32}", nil, []string{names, "TCP/443 TCP/6443 to 192.0.2.1/32", "TCP/8080 TCP/8443 to namespace:events", toGateway}},
		"OpenShift":         {"DNS is in another namespace, at another port", "everybody", "networkPolicy.dns.namespaces={openshift-dns},networkPolicy.dns.ports={5353},networkPolicy.apiServer.cidrs={192.0.2.1/32}", []string{"--set-json", "networkPolicy.dns.cidrs=[]"}, []string{"UDP/5353 TCP/5353 to namespace:openshift-dns", "TCP/443 TCP/6443 to 192.0.2.1/32", broker, toGateway}},
		"NoKea":             {"no Kea is configured", "kea-reserve", "", nil, nil},
		"KeaByAddress":      {"the URL has the address and the port", "kea-reserve", "kea.url=http://192.0.2.7:8005,kea.secondaryUrl=https://[2001:db8::1]:8006", nil, []string{"TCP/8005 to 192.0.2.7/32", "TCP/8006 to 2001:db8::1/128"}},
		"KeaWithoutPort":    {"kea-reserve adds its own default port, not the one of the scheme", "kea-reserve", "kea.url=https://192.0.2.7,kea.secondaryUrl=http://[2001:db8::1]", nil, []string{"TCP/8000 to 192.0.2.7/32", "TCP/8000 to 2001:db8::1/128"}},
		"KeaDefaultPort":    {"a variable has the port of addresses without one", "kea-reserve", "kea.url=https://192.0.2.7,kea.secondaryUrl=http://192.0.2.8:8006,functions.kea-reserve.env.KEA_PORT=8005", nil, []string{"TCP/8005 to 192.0.2.7/32", "TCP/8006 to 192.0.2.8/32"}},
		"KeaByHost":         {"a variable has the host without a scheme", "kea-reserve", "functions.kea-reserve.env.KEA_HOST=192.0.2.7", nil, []string{"TCP/8000 to 192.0.2.7/32"}},
		"KeaByName":         {"the value lists the addresses of the name", "kea-reserve", "kea.url=http://kea.example.com:8005,networkPolicy.kea.cidrs={192.0.2.0/24},networkPolicy.kea.namespaces={dhcp}", nil, []string{"TCP/8005 to 192.0.2.0/24 namespace:dhcp"}},
		"KeaByService":      {"the name of a Service contains its namespace", "kea-reserve", "kea.url=http://kea.dhcp.svc.cluster.local:8000", nil, []string{"TCP/8000 to namespace:dhcp"}},
		"KeaBeside":         {"a single label is a Service in the function's namespace", "kea-reserve", "kea.url=http://kea:8000", nil, []string{"TCP/8000 to namespace:vitistack-system"}},
		"KeaPorts":          {"the pods have another port than the Service", "kea-reserve", "kea.url=http://kea.dhcp.svc:80,networkPolicy.kea.ports={8000}", nil, []string{"TCP/8000 to namespace:dhcp"}},
		"KeaInASecret":      {"the chart cannot read the URL, so a value has the port", "kea-reserve", "networkPolicy.kea.ports={8000},networkPolicy.kea.cidrs={192.0.2.7/32}", nil, []string{"TCP/8000 to 192.0.2.7/32"}},
		"KeaByEnvironment":  {"an environment variable overrides the value", "kea-reserve", "kea.url=http://192.0.2.7:8005,functions.kea-reserve.env.KEA_URL=http://192.0.2.8:8006", nil, []string{"TCP/8006 to 192.0.2.8/32"}},
		"NAM":               {"https is port 443", "provision-network", "nam.url=https://nam.example.com/api,networkPolicy.nam.cidrs={192.0.2.9/32}", nil, []string{"TCP/443 to 192.0.2.9/32"}},
		"NAMAndNetBox":      {"each has its own address", "provision-network", "nam.url=http://192.0.2.9,netbox.url=https://192.0.2.10:8443", nil, []string{"TCP/80 to 192.0.2.9/32", "TCP/8443 to 192.0.2.10/32"}},
		"Proxmox":           {"objects name hypervisors, so values list them", "create-vm", "networkPolicy.proxmox.cidrs={192.0.2.0/24},networkPolicy.kubevirt.cidrs={198.51.100.1/32},networkPolicy.kubevirt.ports={443}", nil, []string{"TCP/8006 to 192.0.2.0/24", "TCP/443 to 198.51.100.1/32"}},
		"NoProxmox":         {"an empty list permits none", "create-vm", "networkPolicy.kubevirt.cidrs={198.51.100.1/32}", []string{"--set-json", "networkPolicy.proxmox.cidrs=[]"}, []string{"TCP/6443 to 198.51.100.1/32"}},
		"Nodes":             {"Talos and Kubernetes of clusters, but not Proxmox VE", "bootstrap-talos", "networkPolicy.nodes.cidrs={192.0.2.0/24},networkPolicy.clusters.namespaces={tenants}", nil, []string{"TCP/50000 to 192.0.2.0/24", "TCP/6443 to " + private + " namespace:tenants"}},
		"NoAddonHosts":      {"manifests are only in ConfigMaps", "bootstrap-talos", "", nil, []string{nodes, clusters}},
		"AddonHosts":        {"a host of manifests is allowed, and the value lists its addresses", "bootstrap-talos", "addons.allowedHosts={example.com},networkPolicy.addons.cidrs={192.0.2.0/24}", nil, []string{nodes, clusters, "TCP/443 to 192.0.2.0/24"}},
		"Backups":           {"S3 is public", "etcd-backup", "networkPolicy.objectStores.cidrs={192.0.2.0/24},networkPolicy.objectStores.ports={443}", nil, []string{nodes, "TCP/443 to 192.0.2.0/24"}},
		"Gateway":           {"it connects to nodes, and has no database, Redis or webhooks", "gateway-backends", "", nil, []string{nodes, clusters}},
		"Database":          {"the URL is in a Secret", "gateway-backends", "database.existingSecret=db,networkPolicy.database.cidrs={192.0.2.3/32},networkPolicy.database.ports={6432}", nil, []string{nodes, clusters, "TCP/6432 to 192.0.2.3/32"}},
		"DatabaseOfAnyKind": {"the port is that of any supported database", "gateway-backends", "database.existingSecret=db,networkPolicy.database.namespaces={pg}", []string{"--set-json", "networkPolicy.database.cidrs=[]"}, []string{nodes, clusters, "TCP/5432 TCP/3306 to namespace:pg"}},
		"DatabaseByURL":     {"the URL is not secret", "gateway-backends", "gateway.env.DATABASE_URL=postgres://192.0.2.3/events", nil, []string{nodes, clusters, "TCP/5432 to 192.0.2.3/32"}},
		"SQLite":            {"a file needs no connection", "gateway-backends", "gateway.env.DATABASE_URL=sqlite:///var/lib/vitistack/history.db", nil, []string{nodes, clusters}},
		"Redis":             {"by Secret", "gateway-backends", "redis.existingSecret=redis,networkPolicy.redis.cidrs={192.0.2.4/32}", nil, []string{nodes, clusters, "TCP/6379 to 192.0.2.4/32"}},
		"RedisByHost":       {"host and port are values", "gateway-backends", "gateway.env.CACHE_REDIS_HOST=redis.example.com,gateway.env.CACHE_REDIS_PORT=6380,networkPolicy.redis.cidrs={192.0.2.4/32}", nil, []string{nodes, clusters, "TCP/6380 to 192.0.2.4/32"}},
		"Webhooks":          {"each endpoint has its URL", "gateway-backends", "networkPolicy.webhooks.cidrs={203.0.113.0/24}", []string{"--set-json", `gateway.env.HANDLERS_WEBHOOK_ENDPOINTS="[{\"url\":\"https://hooks.example.com/x\"},{\"url\":\"http://192.0.2.5:8080/y\"}]"`}, []string{nodes, clusters, "TCP/443 to 203.0.113.0/24", "TCP/8080 to 192.0.2.5/32"}},
		"WebhooksInASecret": {"the chart cannot read the endpoints", "gateway-backends", "gateway.env.HANDLERS_WEBHOOK_ENABLED=true,networkPolicy.webhooks.cidrs={203.0.113.0/24}", nil, []string{nodes, clusters, "TCP/443 to 203.0.113.0/24"}},
		"Operators":         {"the gateway polls it", "gateway-backends", "gateway.env.TALOS_OPERATOR_ENDPOINT=http://talos.operators.svc:9090", nil, []string{nodes, clusters, "TCP/9090 to namespace:operators"}},
		"Proxy":             {"every connection out of the cluster uses the proxy", "create-vm", "config.env.HTTPS_PROXY=192.0.2.6:3128,config.env.HTTP_PROXY=192.0.2.6:3128,config.env.ALL_PROXY=socks5://192.0.2.6", []string{"--set-json", "networkPolicy.proxmox.cidrs=[]", "--set-json", "networkPolicy.kubevirt.cidrs=[]"}, []string{"TCP/3128 to 192.0.2.6/32", "TCP/1080 to 192.0.2.6/32"}},
		"NATS":              {"a value names its namespace", "broker-nats", "broker.class=NatsJetStreamBroker,broker.nats.namespace=queues", nil, []string{"TCP/4222 to namespace:queues"}},
	}
	h := newHelm(t, &rest.Config{})
	for name, tc := range tests {
		policies := policiesOf(t, h.render(t, tc.set, tc.args...))
		i := slices.IndexFunc(policies, func(p networkingv1.NetworkPolicy) bool { return p.Name == tc.policy })
		if i < 0 {
			t.Errorf("%s: the chart has no NetworkPolicy %s", name, tc.policy)
			continue
		}
		var got []string
		for _, rule := range policies[i].Spec.Egress {
			got = append(got, describe(rule))
		}
		want := tc.want
		slices.Sort(got)
		slices.Sort(want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: egress of %s: %s (-want +got):\n%s", name, tc.policy, tc.reason, diff)
		}
	}
}

// TestEventingNamespaceMayDeliver checks that the gateway accepts events only from the namespace in the value.
func TestEventingNamespaceMayDeliver(t *testing.T) {
	t.Parallel()
	h := newHelm(t, &rest.Config{})
	policies := policiesOf(t, h.render(t, "networkPolicy.eventingNamespace=events"))
	for name, tc := range map[string]struct {
		reason string
		from   place
		want   bool
	}{
		"Named":   {"Knative Eventing is in this namespace", place{namespace: "events"}, true},
		"Default": {"Knative Eventing is in another namespace", eventing, false},
	} {
		if got := reaches(t, policies, tc.from, gateway, 9992); got != tc.want {
			t.Errorf("%s: delivers to the gateway: %t, want %t: %s", name, got, tc.want, tc.reason)
		}
	}
}

// TestNotesNameWhatIsOpen checks that the notes of an installation name each value that restricts
// something open.
func TestNotesNameWhatIsOpen(t *testing.T) {
	t.Parallel()
	closed := "auth.enabled=true,auth.existingSecret=keys,authentication.oidc=enabled,networkPolicy.apiServer.cidrs={192.0.2.1/32}"
	for _, value := range []string{"proxmox", "kubevirt", "nodes", "clusters", "objectStores"} {
		closed += ",networkPolicy." + value + ".cidrs={192.0.2.0/24}"
	}
	tests := map[string]struct {
		reason, set string
		says, not   []string
	}{
		"Default": {"no value is set", "", []string{"networkPolicy.proxmox.cidrs", "networkPolicy.nodes.cidrs", "networkPolicy.objectStores.cidrs", "networkPolicy.apiServer.cidrs", "Set auth.enabled"}, []string{"networkPolicy.kea.cidrs"}},
		"Closed":  {"every value is set", closed, nil, []string{"OPEN"}},
		"Tokens":  {"tokens are required, and no key", "gateway.env.AUTH_ENABLED=true,gateway.env.AUTH_TOKENREVIEW=true", nil, []string{"Set auth.enabled"}},
		"Name":    {"the chart does not know the addresses of a name", "kea.url=http://kea.example.com:8000", []string{"networkPolicy.kea.cidrs"}, nil},
		"Address": {"the URL has the address", "kea.url=http://192.0.2.7:8000", nil, []string{"networkPolicy.kea.cidrs"}},
		"Off":     {"network policies are off", "networkPolicy.enabled=false", []string{"OPEN: networkPolicy.enabled is false"}, []string{"networkPolicy.proxmox.cidrs"}},
	}
	h := newHelm(t, &rest.Config{})
	for name, tc := range tests {
		out, err := h.run(t.Context(), "install", "vitistack", chart(), "--dry-run=client", "--set", tc.set)
		if err != nil {
			t.Fatal(err)
		}
		_, notes, found := strings.Cut(out, "NOTES:")
		if !found {
			t.Fatal("an installation has no notes")
		}
		for _, text := range tc.says {
			if !strings.Contains(notes, text) {
				t.Errorf("%s: the notes do not name %s: %s\n%s", name, text, tc.reason, notes)
			}
		}
		for _, text := range tc.not {
			if strings.Contains(notes, text) {
				t.Errorf("%s: the notes name %s: %s\n%s", name, text, tc.reason, notes)
			}
		}
	}
}

// TestCiliumAllowsTheAPI checks for a CiliumNetworkPolicy if Cilium is installed, because Cilium does not match nodes by address.
func TestCiliumAllowsTheAPI(t *testing.T) {
	t.Parallel()
	h := newHelm(t, &rest.Config{})
	for name, tc := range map[string]struct {
		reason string
		args   []string
		want   bool
	}{
		"Cilium": {"the API server runs on nodes of the cluster", []string{"--api-versions", "cilium.io/v2"}, true},
		"Other":  {"the kind does not exist", nil, false},
		"Off":    {"network policies are off", []string{"--api-versions", "cilium.io/v2", "--set", "networkPolicy.enabled=false"}, false},
	} {
		got := slices.ContainsFunc(h.render(t, "", tc.args...), func(o *unstructured.Unstructured) bool { return o.GetKind() == "CiliumNetworkPolicy" })
		if got != tc.want {
			t.Errorf("%s: CiliumNetworkPolicy: %t, want %t: %s", name, got, tc.want, tc.reason)
		}
	}
}

// describe formats a rule of egress as its ports and its peers.
func describe(rule networkingv1.NetworkPolicyEgressRule) string {
	var words []string
	for _, port := range rule.Ports {
		words = append(words, fmt.Sprintf("%s/%s", *port.Protocol, port.Port))
	}
	words = append(words, "to")
	for _, peer := range rule.To {
		switch {
		case peer.IPBlock != nil:
			words = append(words, peer.IPBlock.CIDR)
		case peer.NamespaceSelector != nil && len(peer.NamespaceSelector.MatchExpressions) > 0:
			words = append(words, "namespace:"+strings.Join(peer.NamespaceSelector.MatchExpressions[0].Values, ","))
		case peer.NamespaceSelector != nil:
			words = append(words, "namespace:"+peer.NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"])
		default:
			words = append(words, "pods:"+peer.PodSelector.MatchLabels["app.kubernetes.io/name"])
		}
	}
	return strings.Join(words, " ")
}
