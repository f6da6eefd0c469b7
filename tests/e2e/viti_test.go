package e2e

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vitistack/stack/apis/cause"
	"github.com/vitistack/stack/tests/stand/browser"
	"github.com/vitistack/stack/tests/stand/engine"
	"github.com/vitistack/stack/tests/stand/feed"
)

// busyObjects returns the manifests of make run TOUR=busy without the clusters that are not stuck,
// with the network of the stuck one in the addresses of the engine. Those of namespace desk, whose
// network overlaps another, are returned apart.
func busyObjects(t *testing.T, e *engine.Engine) (first, desk string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", "run", "./tests/busy")
	command.Dir = engine.Root()
	out, err := command.Output()
	if err != nil {
		t.Fatalf("write the manifests: %v", err)
	}
	stream := strings.ReplaceAll(string(out), "127.80.7.", strings.TrimSuffix(e.Network().Addr().String(), "0"))
	var all, apart []string
	for _, doc := range strings.Split(strings.TrimPrefix(strings.TrimSpace(stream), "---\n"), "\n---\n") {
		isCluster := strings.Contains(doc, "kind: KubernetesCluster")
		switch {
		case strings.Contains(doc, "kind: Node\n"), isCluster && !strings.Contains(doc, "name: experiments,") && !strings.Contains(doc, "name: legacy,"):
		case strings.Contains(doc, "namespace: desk}"):
			apart = append(apart, doc)
		default:
			all = append(all, doc)
		}
	}
	return strings.Join(all, "\n---\n"), strings.Join(apart, "\n---\n")
}

// viti runs kubectl viti with the rights of the engine's kubeconfig.
func viti(t *testing.T, e *engine.Engine, args ...string) []byte {
	t.Helper()
	command := exec.CommandContext(t.Context(), filepath.Join(engine.Bin(t), "kubectl-viti"), append([]string{"--kubeconfig", e.Kubeconfig()}, args...)...)
	var errs strings.Builder
	command.Stderr = &errs
	out, err := command.Output()
	if err != nil {
		t.Fatalf("kubectl viti %s: %v: %s", strings.Join(args, " "), err, errs.String())
	}
	return out
}

// chainOnPage returns the chain of causes of an object, such as machine/web, as the page finds it.
func chainOnPage(page *browser.Tab, namespace, object string) string {
	return browser.Eval[string](page, fmt.Sprintf(`Promise.all(["causes", "store", "kinds"].map((name) => import("/page/" + name + ".js"))).then(([causes, store, kinds]) => {
		const [resource, name] = %s.split("/");
		const topic = Object.keys(kinds.resourceOf).find((t) => kinds.resourceOf[t] === resource);
		const item = store.find(topic, %s, name);
		return item ? causes.chainOf(item, topic).map((link) => kinds.kindOf[link.topic] + " " + link.item.name).join(" < ") : "nothing";
	})`, browser.Quote(object), browser.Quote(namespace)))
}

// resources are the kinds of the objects that are stuck.
var resources = map[string]schema.GroupVersionResource{
	"kubernetescluster": engine.KubernetesClusters, "networknamespace": engine.NetworkNamespaces, "machine": engine.Machines,
	"ipallocation": engine.IPAllocations, "machineprovider": engine.MachineProviders,
}

// TestVitiExplains asks kubectl viti about each object that is stuck in make run TOUR=busy: the chain
// ends at the cause, with the remedy and the role that has to act. The object's own condition Ready leads to
// the remedy as well, and the page finds the same chain by its own code. At last, the remedies are followed.
func TestVitiExplains(t *testing.T) {
	t.Parallel()
	e := engine.Start(t)
	first, desk := busyObjects(t, e)
	e.Apply("", first)
	e.UntilPhase(engine.NetworkNamespaces, "commerce", "commerce-network", "Ready")
	e.Apply("", desk)
	table := []struct {
		because, namespace, object string
		// cause is the kind of the cause, and its beginning of the name if it is another object.
		cause, reason string
		owner         cause.Role
		remedy        string
		// message is what the object's own condition Ready says to do, or whom it waits for.
		message string
	}{
		{"the version was never released", "archive", "kubernetescluster/legacy", "KubernetesCluster legacy", "KubernetesVersionUnknown", cause.Requester, "Write a Kubernetes version that the message lists", "write a version from 1.31 to 1.36"},
		{"the pool is too small for the cluster", "labs", "kubernetescluster/experiments", "IPAllocation experiments-", "PoolExhausted", cause.NetworkTeam, "enlarge the pool in spec.ipAllocation.static", "labs-network has no free address: release one, or enlarge its pool in spec.ipAllocation.static"},
		{"no IPAM answers", "archive-cold", "networknamespace/from-nowhere", "NetworkNamespace from-nowhere", "Provisioning", cause.NoAction, "the network team checks the provider", "waiting for IPAM corporate-ipam to answer"},
		{"its network has no segment", "archive-cold", "machine/cold-storage", "NetworkNamespace from-nowhere", "Provisioning", cause.NoAction, "the network team checks the provider", "waiting for IPAM corporate-ipam to answer"},
		{"another network has the prefix", "desk", "networknamespace/overlaps", "NetworkNamespace overlaps", "SegmentOverlap", cause.NetworkTeam, "Get a prefix and a VLAN", "choose another prefix or VLAN, or delete that network"},
		{"the namespace has no network", "homeless", "machine/without-network", "Machine without-network", "NoNetworkNamespace", cause.Requester, "Create a NetworkNamespace in the namespace", "create one"},
		{"the template does not exist", "commerce", "machine/unknown-template", "Machine unknown-template", "TemplateNotFound", cause.Requester, "Write small, medium, large or the name of a MachineClass", "write small, medium or large, or ask the platform team"},
		{"the hypervisor does not exist", "commerce", "machine/unknown-provider", "Machine unknown-provider", "MachineProviderNotFound", cause.Requester, "Name an existing MachineProvider", "create it, or name another in spec.providerRef"},
		{"the StorageClass does not exist", "media", "machine/unknown-storage", "Machine unknown-storage", "StorageClassNotFound", cause.Requester, "Name a StorageClass of the message", "name one of fast-ssd, standard"},
		{"no host is large enough", "insight", "machine/too-large", "Machine too-large", "InsufficientResources", cause.PlatformTeam, "Add hosts", "add hosts, or ask for less CPU or memory"},
		{"the Secret does not exist", "platform", "machine/without-secret", "Machine without-secret", "CloudInitSecretNotFound", cause.Requester, "with the key and the label that the message names", "with the user data under the key userdata and the label vitistack.io/cloud-init=true, or change spec.cloudInit.secretRef"},
		{"it is off on purpose", "platform", "machine/switched-off", "Machine switched-off", "Stopped", cause.NoAction, "spec.powerState", "because spec.powerState is Stopped"},
		{"the address is outside of the pool", "commerce", "ipallocation/outside", "IPAllocation outside", "AddressOutsidePool", cause.Requester, "an address of the pool that the message names", "request one of 127.80.1.10-127.80.1.99, 127.80.1.120-127.80.1.250, or have ipAllocation.static"},
		{"its Secret does not exist", "", "machineprovider/proxmox-oslo", "MachineProvider proxmox-oslo", "CredentialsMissing", cause.PlatformTeam, "with the keys that the message names", "change spec.credentialsRef, or create it with the keys tokenID, for example viti@pve!stack, and tokenSecret"},
	}
	var causes []string
	page := browser.New(t, strings.TrimSuffix(e.Gateway(), "/"), 1200, 900)
	page.Open("")
	for _, tc := range table {
		causes = append(causes, tc.cause)
		feed.Until(t, tc.object+" leads to the remedy", func() (bool, string) {
			var answer struct{ Chain []cause.Link }
			args := []string{"why", tc.object, "-o", "json"}
			if tc.namespace != "" {
				args = append(args, "-n", tc.namespace)
			}
			if err := json.Unmarshal(viti(t, e, args...), &answer); err != nil || len(answer.Chain) == 0 {
				return false, fmt.Sprintf("%s: %v", tc.because, err)
			}
			last := answer.Chain[len(answer.Chain)-1]
			right := strings.HasPrefix(last.Kind+" "+last.Name, tc.cause) && last.Reason == tc.reason && last.Owner == tc.owner && strings.Contains(last.Remedy, tc.remedy)
			if !right {
				return false, fmt.Sprintf("%s: it ends at %s with %s, owner %s, %q", tc.because, last.Ref, last.Reason, last.Owner, last.Remedy)
			}
			var refs []string
			for _, l := range answer.Chain {
				refs = append(refs, l.Kind+" "+l.Name)
			}
			want, got := strings.Join(refs, " < "), chainOnPage(page, tc.namespace, tc.object)
			return got == want, fmt.Sprintf("%s: kubectl viti says %q, and the page %q", tc.because, want, got)
		})
	}
	for _, tc := range table {
		kind, name, _ := strings.Cut(tc.object, "/")
		feed.Until(t, "the message of "+tc.object+" leads to the remedy", func() (bool, string) {
			message := readyCondition(e.Get(resources[kind], tc.namespace, name)).Message
			return strings.Contains(message, tc.message), message
		})
	}
	var overview struct{ Problems []cause.Problem }
	if err := json.Unmarshal(viti(t, e, "status", "-A", "-o", "json"), &overview); err != nil || len(overview.Problems) < 10 {
		t.Fatalf("the overview has %d problems: %v", len(overview.Problems), err)
	}
	for _, p := range overview.Problems {
		if !slices.ContainsFunc(causes, func(name string) bool { return strings.HasPrefix(p.Kind+" "+p.Name, name) }) {
			t.Errorf("the overview has %s (%s: %s), which the table lacks", p.Ref, p.Reason, p.Message)
		}
	}
	followRemedies(t, e)
}

// followRemedies does what the remedies say, as a reader of them does, until the objects are Ready.
func followRemedies(t *testing.T, e *engine.Engine) {
	t.Helper()
	labs := strings.TrimSuffix(e.Network().Addr().String(), "0")
	for _, tc := range []struct {
		because, namespace, object, commands string
		// reason is that of the condition Ready afterwards. It is empty for one that is True.
		reason string
	}{
		{"its nodes would need addresses of the engine: the API server alone checks it", "archive", "kubernetescluster/legacy", "kubectl viti upgrade legacy -n archive | grep -- '--to 1.33'\nkubectl viti upgrade legacy -n archive --to 1.33 --dry-run",
			"KubernetesVersionUnknown"},
		{"the pool has room for all nodes", "labs", "kubernetescluster/experiments", "kubectl patch networknamespace labs-network -n labs --type merge -p '{\"spec\":{\"ipAllocation\":{\"static\":{\"ipv4RangeEnd\":\"" + labs + "250\"}}}}'", ""},
		{"the manifest has its segment", "archive-cold", "machine/cold-storage",
			`kubectl patch networknamespace from-nowhere -n archive-cold --type merge -p '{"spec":{"networkProvisioning":{"provider":"manual","manual":{"ipv4CIDR":"10.8.0.0/24","ipv4Gateway":"10.8.0.1","vlanId":308}}}}'`, ""},
		{"no other network has it", "desk", "networknamespace/overlaps",
			`kubectl patch networknamespace overlaps -n desk --type merge -p '{"spec":{"networkProvisioning":{"manual":{"ipv4CIDR":"10.9.0.0/25","ipv4Gateway":"10.9.0.1","vlanId":309}}}}'`, ""},
		{"the example is for any namespace", "homeless", "machine/without-network", "sed 's/namespace: .*/namespace: homeless/' apis/examples/lab-network.yaml | kubectl apply -f -", ""},
		{"the size exists", "commerce", "machine/unknown-template", `kubectl patch machine unknown-template -n commerce --type merge -p '{"spec":{"template":"small"}}'`, ""},
		{"the MachineProvider exists", "commerce", "machine/unknown-provider", `kubectl patch machine unknown-provider -n commerce --type merge -p '{"spec":{"providerRef":{"name":"kubevirt"}}}'`, ""},
		{"the StorageClass exists", "media", "machine/unknown-storage", `kubectl patch machine unknown-storage -n media --type merge -p '{"spec":{"disks":[{"name":"data","size":"10Gi","storageClass":"standard"}]}}'`, ""},
		{"a host has as much memory", "insight", "machine/too-large", `kubectl patch machine too-large -n insight --type merge -p '{"spec":{"resources":{"memory":{"size":"4Gi"}}}}'`, ""},
		{"the Secret has the key and the label", "platform", "machine/without-secret",
			"kubectl create secret generic not-there -n platform --from-literal=userdata='#cloud-config'\nkubectl label secret not-there -n platform vitistack.io/cloud-init=true\nkubectl viti reconcile machine/without-secret -n platform", ""},
		{"the pool has the address", "commerce", "ipallocation/outside", `kubectl delete ipallocation outside -n commerce
			echo '{apiVersion: vitistack.io/v1alpha2, kind: IPAllocation, metadata: {name: outside, namespace: commerce}, spec: {networkNamespaceName: commerce-network, requestedAddress: 127.80.1.250}}' | kubectl apply -f -`, ""},
		{"the next remedy is about the hypervisor, which does not exist", "", "machineprovider/proxmox-oslo",
			"kubectl create secret generic proxmox-oslo -n vitistack-system --from-literal=tokenID='viti@pve!stack' --from-literal=tokenSecret=x\nkubectl viti reconcile machineprovider/proxmox-oslo", "Unreachable"},
	} {
		shell(t, e, tc.commands)
		kind, name, _ := strings.Cut(tc.object, "/")
		feed.Until(t, tc.object+" follows its remedy", func() (bool, string) {
			ready := readyCondition(e.Get(resources[kind], tc.namespace, name))
			return ready.Reason == tc.reason || tc.reason == "" && ready.Status == "True", fmt.Sprintf("%s: %s: %s", tc.because, ready.Reason, ready.Message)
		})
	}
}
