package main

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/bootstrap-talos/talos"
	"github.com/vitistack/stack/tests/stand/feed"
)

const (
	swappinessPatch = "machine:\n  sysctls:\n    vm.swappiness: \"7\"\n"
	encryptionPatch = "apiVersion: v1alpha1\nkind: VolumeConfig\nname: EPHEMERAL\nencryption:\n  provider: luks2\n  keys:\n    - slot: 0\n      static: {passphrase: former}\n"
)

// setPatches creates or changes the ConfigMap disks, and has the cluster reconciled.
func (s *env) setPatches(cluster string, patches ...string) {
	s.Helper()
	s.writePatches(patches...)
	s.reconcile(cluster)
}

// writePatches creates or changes the ConfigMap disks.
func (s *env) writePatches(patches ...string) {
	s.Helper()
	data := map[string]any{"a.yaml": strings.Join(patches, "---\n")}
	cm := &corev1.ConfigMap{}
	if err := s.kube.Get(s.Context(), s.namespace, "disks", cm); err != nil {
		s.Fatal(err)
	}
	if err := s.kube.Merge(s.Context(), cm, map[string]any{"data": data}); err != nil {
		s.Fatal(err)
	}
}

// newPatchedCluster creates the cluster shop, whose control plane or whose pool has the patches of the ConfigMap disks.
func (s *env) newPatchedCluster(controlPlanes, workers int32, patchesOfControlPlane bool) {
	s.Helper()
	s.configMap("disks", map[string]string{"a.yaml": swappinessPatch})
	kc := s.cluster("shop", controlPlanes, workers)
	if patchesOfControlPlane {
		kc.Spec.Topology.ControlPlane.Patches = []v1alpha1.ObjectName{"disks"}
	} else {
		kc.Spec.Topology.Workers[0].Patches = []v1alpha1.ObjectName{"disks"}
	}
	s.create(kc)
	s.awaitRunning("shop")
}

// isEncrypted reports whether the volume EPHEMERAL of a node is encrypted.
func (s *env) isEncrypted(node string) bool {
	s.Helper()
	ctx, c, end, err := talos.Connect(s.Context(), plan.Address(s.machine(node)), s.access("shop"), time.Minute)
	if err != nil {
		s.Fatal(err)
	}
	defer end()
	v, err := safe.StateGetByID[*block.VolumeStatus](ctx, c.COSI, "EPHEMERAL")
	if err != nil {
		s.Fatal(err)
	}
	return v.TypedSpec().EncryptionProvider == block.EncryptionProviderLUKS2
}

// awaitCurrent waits until the cluster shop is Running with current machines and configurations, and none of its Machines
// of a prefix has a UID of before.
func (s *env) awaitCurrent(prefix string, before map[string]string, machines int) {
	s.Helper()
	feed.Until(s, "every machine of "+prefix+" is another one, and current", func() (bool, string) {
		kc := s.get("shop")
		now, others := s.uidsOfShop(), 0
		for name, uid := range now {
			if strings.HasPrefix(name, prefix) && !slices.Contains(mapValues(before), uid) {
				others++
			}
		}
		isCurrent := meta.IsStatusConditionTrue(kc.Status.Conditions, v1alpha1.ConditionMachinesCurrent) &&
			meta.IsStatusConditionTrue(kc.Status.Conditions, v1alpha1.ConditionConfigCurrent)
		return isUpToDate(kc) && isCurrent && others == machines && len(now) == len(before), fmt.Sprint(kc.Status.Message, now)
	})
}

// uidsOfShop returns the UIDs of the Machines of the cluster shop, by name. Machines may be deleted at the same time.
func (s *env) uidsOfShop() map[string]string {
	s.Helper()
	list := &v1alpha1.MachineList{}
	if err := s.kube.List(s.Context(), s.namespace, v1alpha1.LabelClusterName+"=shop", list); err != nil {
		s.Fatal(err)
	}
	uids := map[string]string{}
	for _, m := range list.Items {
		uids[m.Name] = string(m.UID)
	}
	return uids
}

func mapValues(m map[string]string) (values []string) {
	for _, v := range m {
		values = append(values, v)
	}
	return values
}

func (s *env) awaitCondition(condition, reason string, words ...string) {
	s.Helper()
	feed.Until(s, condition+" is False: "+reason, func() (bool, string) {
		c := meta.FindStatusCondition(s.get("shop").Status.Conditions, condition)
		if c == nil {
			return false, ""
		}
		isMissing := func(w string) bool { return !strings.Contains(c.Message, w) }
		return c.Status == metav1.ConditionFalse && c.Reason == reason && !slices.ContainsFunc(words, isMissing), c.Reason + ": " + c.Message
	})
}

// TestPatchThatNeedsNewNodes encrypts the volumes of a pool. Its nodes get what Talos applies to a running node, and are
// replaced for the rest, like for another template: not while spec.upgrade.paused is true, and not if the patch is taken back before.
func TestPatchThatNeedsNewNodes(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{})
	s.newPatchedCluster(1, 2, false)
	before := s.uidsOfShop()
	pause := func(paused bool) {
		t.Helper()
		s.change("shop", func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Upgrade = &v1alpha1.UpgradeOptions{Paused: paused} })
	}
	pause(true)
	s.setPatches("shop", swappinessPatch, encryptionPatch)
	s.awaitCondition(v1alpha1.ConditionMachinesCurrent, "ReplacementPaused", "2 machines still to be replaced", "another encryption of EPHEMERAL than its patches")
	s.awaitCondition(v1alpha1.ConditionConfigCurrent, "NewNodeNeeded", "shop-pool-0", "encryption of EPHEMERAL")
	for _, node := range []string{"pool-0", "pool-1"} {
		config := s.activeConfig("shop", node)
		if !strings.Contains(config, "vm.swappiness") || strings.Contains(config, "luks2") {
			t.Errorf("node %s runs another configuration than what Talos applies to a running node:\n%s", node, config)
		}
	}
	s.setPatches("shop", swappinessPatch)
	feed.Until(t, "the machines are current without the patch", func() (bool, string) {
		kc := s.get("shop")
		return isTrue(kc, v1alpha1.ConditionMachinesCurrent) && isTrue(kc, v1alpha1.ConditionConfigCurrent), kc.Status.Message
	})
	s.setPatches("shop", swappinessPatch, encryptionPatch)
	s.awaitCondition(v1alpha1.ConditionMachinesCurrent, "ReplacementPaused")
	if now := s.uidsOfShop(); len(now) != len(before) || now["shop-pool-0"] != before["shop-pool-0"] {
		t.Fatalf("machines were replaced during a pause: %v instead of %v", now, before)
	}
	result := s.watchMachines("shop")
	pause(false)
	s.awaitCurrent("shop-pool-", before, 2)
	if most, fewest := result(); most > 4 || fewest < 3 {
		t.Errorf("between %d and %d machines, want between 3 and 4", fewest, most)
	}
	for name, uid := range s.uidsOfShop() {
		if isWorker := strings.HasPrefix(name, "shop-pool-"); s.isEncrypted(name) != isWorker {
			t.Errorf("node %s is encrypted: %t, want %t", name, !isWorker, isWorker)
		} else if !isWorker && uid != before[name] {
			t.Errorf("%s was replaced", name)
		}
	}
}

// beforeRead calls a function once before the ConfigMap disks is read.
type beforeRead struct {
	http.RoundTripper
	call atomic.Pointer[func()]
}

func (b *beforeRead) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodGet && strings.HasSuffix(req.URL.Path, "/configmaps/disks") {
		if call := b.call.Swap(nil); call != nil {
			(*call)()
		}
	}
	return b.RoundTripper.RoundTrip(req)
}

// TestPauseDuringReconcile pauses a cluster and changes a patch after a reconcile has read the cluster, and before it reads
// the patch: it must not replace a machine for a change that came after the pause.
func TestPauseDuringReconcile(t *testing.T) {
	t.Parallel()
	b, g := &beforeRead{}, &gate{}
	s := newEnv(t, envOptions{wrap: func(next http.RoundTripper) http.RoundTripper { b.RoundTripper = next; return b }, handle: g.wrap})
	s.newPatchedCluster(1, 1, false)
	g.close()
	pause := func() {
		s.change("shop", func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Upgrade = &v1alpha1.UpgradeOptions{Paused: true} })
		s.writePatches(encryptionPatch)
	}
	b.call.Store(&pause)
	if _, err := s.function.reconcileCluster(t.Context(), s.namespace, "shop", reconcileOptions{full: true}); err != nil {
		t.Fatal(err)
	}
	if b.call.Load() != nil {
		t.Fatal("the reconcile has not read the patch")
	}
	for _, m := range s.machines("shop") {
		if why := s.machine("shop-" + m).Annotations[v1alpha1.AnnotationReplace]; why != "" {
			t.Errorf("Machine %s is replaced during a pause: %s", m, why)
		}
	}
	c := meta.FindStatusCondition(s.get("shop").Status.Conditions, v1alpha1.ConditionMachinesCurrent)
	if c == nil || c.Reason != "ReplacementPaused" {
		t.Errorf("MachinesCurrent is %+v, want the reason ReplacementPaused", c)
	}
}

// TestPatchOfControlPlanes replaces control planes one at a time.
func TestPatchOfControlPlanes(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{})
	s.newPatchedCluster(3, 0, true)
	before := s.uidsOfShop()
	result := s.watchMachines("shop")
	s.setPatches("shop", encryptionPatch)
	s.awaitCurrent("shop-cp-", before, 3)
	if most, fewest := result(); most > 4 || fewest < 3 {
		t.Errorf("between %d and %d control planes, want 3 and one more", fewest, most)
	}
	for name := range s.uidsOfShop() {
		if !s.isEncrypted(name) {
			t.Errorf("node %s is not encrypted", name)
		}
		if members := s.members("shop", strings.TrimPrefix(name, "shop-")); len(members) != 3 {
			t.Errorf("etcd has the members %v", members)
		}
	}
}

// TestUnencryptedNodeIsReplaced has a node that runs a configuration with an encryption that its disk lacks, and whose Machine
// does not say what it was installed with.
func TestUnencryptedNodeIsReplaced(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{})
	s.newPatchedCluster(1, 1, false)
	before := s.uidsOfShop()
	s.configureNode("shop-pool-0", s.activeConfig("shop", "pool-0")+"---\n"+encryptionPatch)
	s.annotate("shop-pool-0", v1alpha1.AnnotationNodeConfig, "")
	s.setPatches("shop", swappinessPatch, encryptionPatch)
	s.awaitCurrent("shop-pool-", before, 1)
	for name := range s.uidsOfShop() {
		if isWorker := strings.HasPrefix(name, "shop-pool-"); s.isEncrypted(name) != isWorker {
			t.Errorf("node %s is encrypted: %t, want %t", name, !isWorker, isWorker)
		}
	}
}

// configureNode gives a node a configuration, as an earlier version did.
func (s *env) configureNode(name, config string) {
	s.Helper()
	ctx, c, end, err := talos.Connect(s.Context(), plan.Address(s.machine(name)), s.access("shop"), time.Minute)
	if err != nil {
		s.Fatal(err)
	}
	defer end()
	if _, err := c.ApplyConfiguration(ctx, &machineapi.ApplyConfigurationRequest{Data: []byte(config), Mode: machineapi.ApplyConfigurationRequest_NO_REBOOT}); err != nil {
		s.Fatal(err)
	}
}

// TestIgnoredSize has a node that runs a configuration with a limit of its volume that it ignores, and whose Machine does not
// say what it was installed with.
func TestIgnoredSize(t *testing.T) {
	t.Parallel()
	const limit = "apiVersion: v1alpha1\nkind: VolumeConfig\nname: EPHEMERAL\nprovisioning:\n  maxSize: 2GiB\n"
	s := newEnv(t, envOptions{})
	s.newPatchedCluster(1, 1, false)
	before := s.uidsOfShop()
	s.configureNode("shop-pool-0", s.activeConfig("shop", "pool-0")+"---\n"+limit)
	s.annotate("shop-pool-0", v1alpha1.AnnotationNodeConfig, "")
	s.setPatches("shop", swappinessPatch, limit)
	s.awaitCurrent("shop-pool-", before, 1)
	before = s.uidsOfShop()
	names := slices.Sorted(maps.Keys(before))
	worker := names[len(names)-1]
	s.annotate(worker, v1alpha1.AnnotationNodeConfig, "")
	s.reconcile("shop")
	feed.Until(t, "the Machine says what its node was installed with", func() (bool, string) {
		recorded := s.machine(worker).Annotations[v1alpha1.AnnotationNodeConfig]
		return strings.Contains(recorded, "volume EPHEMERAL"), recorded
	})
	s.awaitRunning("shop")
	if now := s.uidsOfShop(); !maps.Equal(now, before) {
		t.Errorf("a node that has the limit is replaced: %v, before %v", now, before)
	}
}

// TestKernelArguments writes arguments of the kernel into a patch, which a node that boots a disk image ignores: also of a
// cluster whose nodes run a configuration with them since an earlier version.
func TestKernelArguments(t *testing.T) {
	t.Parallel()
	const arguments = swappinessPatch + "  install:\n    extraKernelArgs: [quiet]\n"
	s := newEnv(t, envOptions{})
	s.newPatchedCluster(1, 1, false)
	before := s.uidsOfShop()
	s.setPatches("shop", arguments)
	s.awaitReason("shop", "InvalidPatch", "a.yaml of ConfigMap disks sets machine.install.extraKernelArgs", "spec.talos.schematic")
	s.setPatches("shop", swappinessPatch)
	s.awaitRunning("shop")

	active := s.activeConfig("shop", "pool-0")
	s.configureNode("shop-pool-0", strings.Replace(strings.Replace(active, "grubUseUKICmdline: true", "grubUseUKICmdline: false", 1),
		"    install:\n", "    install:\n        extraKernelArgs: [quiet]\n", 1))
	if got := s.activeConfig("shop", "pool-0"); !strings.Contains(got, "quiet") {
		t.Fatalf("the node runs\n%s", got)
	}
	s.annotate("shop-pool-0", v1alpha1.AnnotationNodeConfig, "")
	s.setPatches("shop", arguments+"    grubUseUKICmdline: false\n")
	feed.Until(t, "the Machine says what its node was installed with", func() (bool, string) {
		recorded := s.machine("shop-pool-0").Annotations[v1alpha1.AnnotationNodeConfig]
		return recorded == "{}", recorded
	})
	s.reconcile("shop")
	s.awaitReason("shop", "InvalidPatch", "a.yaml of ConfigMap disks sets machine.install.extraKernelArgs", "spec.talos.schematic")
	s.setPatches("shop", swappinessPatch)
	s.awaitRunning("shop")
	if now := s.uidsOfShop(); !maps.Equal(now, before) {
		t.Errorf("a machine is replaced: %v, before %v", now, before)
	}
	if got := s.activeConfig("shop", "pool-0"); strings.Contains(got, "quiet") {
		t.Error("the node keeps the arguments in its configuration")
	}
}

// TestKeyOfAnEncryptedNode changes a passphrase, which the digests do not contain. The condition says so, and following its
// message leads to a current cluster.
func TestKeyOfAnEncryptedNode(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{})
	s.configMap("disks", map[string]string{"a.yaml": encryptionPatch})
	kc := s.cluster("shop", 1, 1)
	kc.Spec.Topology.Workers[0].Patches = []v1alpha1.ObjectName{"disks"}
	s.create(kc)
	s.awaitRunning("shop")
	before := s.uidsOfShop()
	if parts := s.machine("shop-pool-0").Annotations[v1alpha1.AnnotationNodeConfig]; !strings.Contains(parts, "encryption of EPHEMERAL") || strings.Contains(parts, "former") {
		t.Errorf("the Machine says that its node was installed with %q", parts)
	}
	s.annotate("shop-pool-0", v1alpha1.AnnotationNodeConfig, "")
	s.reconcile("shop")
	s.awaitCurrent("shop-pool-", map[string]string{"shop-cp-0": "", "shop-pool-0": ""}, 1)
	if now := s.uidsOfShop(); now["shop-pool-0"] != before["shop-pool-0"] {
		t.Fatal("a node was replaced because its Machine did not say what it was installed with")
	}
	s.setPatches("shop", strings.Replace(encryptionPatch, "former", "latter", 1))
	s.awaitCondition(v1alpha1.ConditionConfigCurrent, "NewNodeNeeded", "shop-pool-0", "vitistack.io/remove=true")
	if c := meta.FindStatusCondition(s.get("shop").Status.Conditions, v1alpha1.ConditionConfigCurrent); strings.Contains(c.Message, "latter") {
		t.Errorf("the condition has the passphrase: %s", c.Message)
	}
	s.annotate("shop-pool-0", v1alpha1.AnnotationRemove, "true")
	s.awaitCurrent("shop-pool-", before, 1)
}
