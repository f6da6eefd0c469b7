package preview

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/cause"
	"github.com/vitistack/stack/apis/v1alpha1"
)

// unsaid has the mistakes of users that a preview cannot say, by why it cannot.
var unsaid = map[string][]string{
	"the provider of networks decides, at the request": {
		"NoParentPrefix", "ParentPrefixesFull", "NoVLANGroup", "VLANGroupFull", "SegmentGone", "SourceChanged", "SourceConflict", "SourceFailed",
		"SourceNotPrepared", "SourceRejected", "SourceUnavailable", "SourceUnexpectedAnswer", "TooManyObjects",
	},
	"Kea decides, by its configuration and its reservations": {
		"ForeignReservation", "KeaNotPersisted", "KeaRefused", "KeaUnavailable", "KeaUnexpectedAnswer", "KeaUnsupported", "SubnetMissing", "SubnetOverlap", "ProviderNotExplicit",
	},
	"the network itself is not Ready for the same cause": {"NoIPv4Prefix"},
	"the hypervisor decides, by its images, hosts, storages and virtual machines": {
		"ImageNotFound", "ImageImportFailed", "NodeNotFound", "StorageClassNotFound", "DiskCannotGrow", "DiskCannotShrink", "VirtualMachineNameTaken", "CrashLoop", "AddressMismatch",
	},
	"the package of the hypervisor decides, by what this hypervisor supports": {"ImageNotSupported", "NotSupported", "SnippetNotAllowed", "TooManyDisks"},
	"the API server decides, when it gets the fields of a ClusterTemplate":    {"ClusterTemplateRejected"},
	"Secrets and ConfigMaps decide, and a preview reads none": {
		"CloudInitSecretNotFound", "CloudInitSecretNotAllowed", "CredentialsNotFound", "CredentialsIncomplete", "PatchNotFound", "InvalidPatch", "InvalidConfiguration", "AddonInvalid",
	},
	"the Leases and addresses of other objects decide, at the allocation": {
		"AddressTaken", "IPAllocation/AddressTaken", "AddressInUse", "AllocationNameTaken", "AllocationRefused", "DuplicateMACAddress", "IPv4NotServed", "IPv6NotServed", "NoInterfaces", "NameTaken",
		"NetworkConfigurationNotFound", "NetworkFailed",
	},
	"etcd-backup decides, at the reconcile": {"ClusterNotFound", "InvalidSchedule", "InvalidEndpoint", "InvalidPath", "StorageRefused", "BackupFailed"},
	"the machines and nodes of the cluster decide, while it changes": {
		"AddonRefused", "DrainBlocked", "MachineOutdated", "MachineRefused", "MachinesUnhealthy", "NewNodeNeeded", "RebootNeeded", "ResizeFailed", "Staged", "TalosTooOld", "UpgradeFailed", "UpgradeRefused", "VirtualAddressFailed", "WaitingForEndpoint",
	},
	"a person decides":                              {"PendingApproval", "ApprovalRejected"},
	"it comes later, with time":                     {"Lapsed"},
	"the deletion is refused":                       {"Protected"},
	"it is no mistake":                              {"ReplacementPaused", "UpgradePaused", "Suspended", "SpecChanged"},
	"it is MachineProviderNotFound of the machines": {"ProviderNotFound"},
	"the API server refuses it":                     {"ProviderChanged", "RequestChanged", "SegmentChanged"},
}

// TestReasonsAreSaid checks that a preview says each mistake of a user, or that unsaid has why it cannot. A reason is
// said if a test of this package expects it.
func TestReasonsAreSaid(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	tests := ""
	for _, file := range files {
		if file == "reasons_test.go" {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		tests += string(text)
	}
	for reason := range saidOfChanges(t) {
		tests += " " + reason + " "
	}
	listed := map[string]bool{}
	for _, reasons := range unsaid {
		for _, reason := range reasons {
			listed[reason] = true
		}
	}
	for _, key := range cause.Reasons() {
		kind, reason, isOfKind := strings.Cut(key, "/")
		if !isOfKind {
			kind, reason = "", key
		}
		turn := cause.Advise(kind, reason).Owner
		isSaid := regexp.MustCompile(`\b` + reason + `\b`).MatchString(tests)
		switch {
		case turn != cause.Requester && turn != cause.NetworkTeam:
		case isSaid && listed[key]:
			t.Errorf("a preview says %s: remove it from unsaid", key)
		case !isSaid && !listed[key]:
			t.Errorf("no test of this package expects %s: have the preview say it, or add why it cannot to unsaid", key)
		}
		delete(listed, key)
	}
	for reason := range listed {
		t.Errorf("unsaid has %s, which no function writes", reason)
	}
}

// saidOfChanges returns previews by the reason that each of them has.
func saidOfChanges(t *testing.T) map[string]*Preview {
	t.Helper()
	const running = "\nstatus: {version: 1.33.13, talosVersion: 1.13.9}"
	cluster := func(version, rest string) string {
		return `{topology: {version: "` + version + `", controlplane: {replicas: 1, template: small}` + rest + `}}`
	}
	change := func(to string) []Document {
		d := changed(t, clusterHead, "spec: "+cluster("1.33", "")+running, to)
		d[0].After.Object["status"] = d[0].Before.Object["status"]
		return d
	}
	with := func(change func(*World)) World {
		w := worldOf(t)
		change(&w)
		return w
	}
	protected := with(func(w *World) {
		m := v1alpha1.Machine{}
		m.Name, m.Namespace, m.Spec.Template, m.Spec.Protected = "shop-w-0", "a", "small", true
		m.Labels = map[string]string{v1alpha1.LabelClusterName: "shop", v1alpha1.LabelMachineTemplate: "small", v1alpha1.LabelClusterRole: v1alpha1.RoleWorker, v1alpha1.LabelWorkerGroup: "w"}
		w.Machines = append(w.Machines, m)
	})
	web := parsed(t, machineHead+"spec: {template: small}\n")
	deleting := metav1.Now()
	return map[string]*Preview{
		"KubernetesDowngrade":           Make(change(cluster("1.32", "")), worldOf(t)),
		"KubernetesVersionNotSupported": Make(change(strings.Replace(cluster("1.34", ""), "{topology", "{talos: {version: 1.9.6}, topology", 1)), worldOf(t)),
		"TalosVersionUnknown":           Make(change(strings.Replace(cluster("1.33", ""), "{topology", "{talos: {version: newest}, topology", 1)), worldOf(t)),
		"TalosUpgradePath":              Make(change(strings.Replace(cluster("1.33", ""), "{topology", "{talos: {version: 1.10.9}, topology", 1)), worldOf(t)),
		"VersionSkew":                   Make(change(cluster("1.33", ", workers: [{name: w, replicas: 1, version: \"1.34\"}]")), worldOf(t)),
		"MachineProtected":              Make(change(cluster("1.33", ", workers: [{name: w, replicas: 0}]")), protected),
		"Paused":                        Make(change(strings.Replace(cluster("1.34", ""), "{topology", "{paused: true, topology", 1)), worldOf(t)),
		"MachineProviderAmbiguous": Make(web, with(func(w *World) {
			w.Providers = append(w.Providers, v1alpha1.MachineProvider{ObjectMeta: metav1.ObjectMeta{Name: "second"}})
		})),
		"MachineProviderDeleting": Make(parsed(t, machineHead+"spec: {template: small, providerRef: {name: pve}}\n"), with(func(w *World) {
			w.Providers[0].DeletionTimestamp = &deleting
		})),
		"NetworkNamespaceAmbiguous": Make(web, with(func(w *World) { w.Networks = append(w.Networks, w.Networks[0]); w.Networks[1].Name = "second" })),
	}
}

// TestReasonsOfChanges checks that each preview has its reason.
func TestReasonsOfChanges(t *testing.T) {
	t.Parallel()
	for reason, p := range saidOfChanges(t) {
		if !slices.ContainsFunc(append(p.Errors, p.Warnings...), func(f Finding) bool { return f.Reason == reason }) {
			t.Errorf("%s: the preview has errors %s, and warnings %s", reason, lines(p.Errors), lines(p.Warnings))
		}
	}
}
