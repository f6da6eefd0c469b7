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

// TestVitiExplains asks kubectl viti about each object that is stuck in make run TOUR=busy: the chain
// ends at the cause, with the remedy and the role that has to act. The object's own condition Ready leads to
// the remedy as well, and the page finds the same chain by its own code.
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
		{"the pool is too small for the cluster", "labs", "kubernetescluster/experiments", "IPAllocation experiments-", "PoolExhausted", cause.NetworkTeam, "enlarge the pool", "labs-network has no free address: release one, or enlarge its pool"},
		{"no IPAM answers", "archive-cold", "networknamespace/from-nowhere", "NetworkNamespace from-nowhere", "Provisioning", cause.NoAction, "the network team checks the provider", "waiting for IPAM corporate-ipam to answer"},
		{"its network has no segment", "archive-cold", "machine/cold-storage", "NetworkNamespace from-nowhere", "Provisioning", cause.NoAction, "the network team checks the provider", "waiting for IPAM corporate-ipam to answer"},
		{"another network has the prefix", "desk", "networknamespace/overlaps", "NetworkNamespace overlaps", "SegmentOverlap", cause.NetworkTeam, "Write a prefix and a VLAN", "choose another prefix or VLAN, or delete that network"},
		{"the namespace has no network", "homeless", "machine/without-network", "Machine without-network", "NoNetworkNamespace", cause.Requester, "Create the NetworkNamespace", "create one"},
		{"the template does not exist", "commerce", "machine/unknown-template", "Machine unknown-template", "TemplateNotFound", cause.Requester, "Write small, medium, large or the name of a MachineClass", "write small, medium or large, or ask the platform team"},
		{"the hypervisor does not exist", "commerce", "machine/unknown-provider", "Machine unknown-provider", "MachineProviderNotFound", cause.Requester, "Name an existing MachineProvider", "create it, or name another in spec.providerRef"},
		{"the StorageClass does not exist", "media", "machine/unknown-storage", "Machine unknown-storage", "StorageClassNotFound", cause.Requester, "Name a StorageClass of the message", "name one of fast-ssd, standard"},
		{"no host is large enough", "insight", "machine/too-large", "Machine too-large", "InsufficientResources", cause.PlatformTeam, "Add hosts", "add hosts, or ask for less CPU or memory"},
		{"the Secret does not exist", "platform", "machine/without-secret", "Machine without-secret", "CloudInitSecretNotFound", cause.Requester, "Create the Secret", "create it, or change spec.cloudInit.secretRef"},
		{"it is off on purpose", "platform", "machine/switched-off", "Machine switched-off", "Stopped", cause.NoAction, "spec.powerState", "as spec.powerState asks"},
		{"the address is outside of the pool", "commerce", "ipallocation/outside", "IPAllocation outside", "AddressOutsidePool", cause.Requester, "an address of the pool", "request another address, or change ipAllocation.static"},
		{"its Secret does not exist", "", "machineprovider/proxmox-oslo", "MachineProvider proxmox-oslo", "CredentialsMissing", cause.PlatformTeam, "Create the Secret", "create it, or change spec.credentialsRef"},
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
	resources := map[string]schema.GroupVersionResource{
		"kubernetescluster": engine.KubernetesClusters, "networknamespace": engine.NetworkNamespaces, "machine": engine.Machines,
		"ipallocation": engine.IPAllocations, "machineprovider": engine.MachineProviders,
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
}
