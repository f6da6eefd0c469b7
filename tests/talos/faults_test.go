package talos

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/tests/stand/engine"
	"github.com/vitistack/stack/tests/stand/lab"
)

// TestFaults has the nodes of a cluster lose their power and their data, and the stack lose answers of nodes.
func TestFaults(t *testing.T) {
	e := newEnv(t, "make test-talos-faults RESULTS=tests/talos/FAULTS.md")
	e.measure("create one control plane and one worker, cut the power of the first in each of four phases, and lose the answer of Bootstrap", func() {
		pulled := e.images.hold("etcd")
		e.Apply(namespace, cluster)
		e.cutPowerInPhase("WaitingForNode")
		e.cutPowerDuringPull(t, pulled)
		e.cutPowerInPhase("WaitingForAPI")
		e.cutPowerInPhase("WaitingForNodes")
		e.awaitRunning(2)
	})
	e.checkNodes(t, 1, 1)
	lost := e.loseAnswer(t, "ApplyConfiguration")
	e.scale("scale the control plane to 3, and lose the answer of ApplyConfiguration", 3, 1)
	e.awaitLost(lost, "ApplyConfiguration")
	e.checkNodes(t, 3, 1)
	e.checkPods(t)
	e.checkUnhealthy(t)
	e.measure("cut the power of all nodes", func() { e.loseAllPower(t) })
	e.measure("lose the data of one of three control planes", func() { e.loseOneMember(t) })
	e.measure("lose the data of three control planes, and restore etcd from a snapshot", func() { e.restore(t) })
	e.measure("lose the data of two of three control planes, and restore etcd from the third", func() { e.restoreMinority(t) })
	e.deleteCluster()
	e.deleteNetwork()
}

// power switches a node off with kill -9 to all of its processes, or on.
func (e *env) power(id, verb string) {
	e.t.Helper()
	guest, err := os.ReadFile(guestFile(id))
	if err == nil {
		err = runNode(verb, id, guest)
	}
	if err != nil {
		e.t.Fatal(err)
	}
}

// guestFile returns the file with the kubevirt.Guest of a node.
func guestFile(id string) string { return filepath.Join(lab.Talos(folder()).Nodes(), id, "guest.json") }

// cutPowerInPhase switches the first control plane off while the cluster is not Ready for a reason, and on again.
func (e *env) cutPowerInPhase(reason string) {
	e.t.Helper()
	e.awaitReason(e.t, v1alpha1.ConditionReady, reason)
	id := e.nodeOf(e.t, clusterName+"-cp-0")
	e.power(id, "off")
	e.power(id, "on")
	e.step("the control plane was switched off and on")
}

// cutPowerDuringPull switches the first control plane off while it pulls the image of etcd, and on again. Talos then has lost the request to
// begin etcd, so the stack has to repeat it. The answer of the repeated request is lost.
func (e *env) cutPowerDuringPull(t *testing.T, pulled <-chan struct{}) {
	e.t.Helper()
	select {
	case <-pulled:
	case <-time.After(5 * time.Minute):
		e.t.Fatal("no node pulls the image of etcd after 5 minutes")
	}
	e.step("the control plane pulls the image of etcd")
	id := e.nodeOf(e.t, clusterName+"-cp-0")
	e.power(id, "off")
	e.images.release()
	lost := e.loseAnswer(t, "Bootstrap")
	e.power(id, "on")
	e.step("the control plane was switched off and on")
	e.awaitLost(lost, "Bootstrap")
}

// loseAllPower switches all nodes off and on again. The cluster continues without a change by the stack.
func (e *env) loseAllPower(t *testing.T) {
	ids, err := nodeFolders()
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		e.power(id, "off")
	}
	e.step("all %d nodes are off", len(ids))
	for _, id := range ids {
		e.power(id, "on")
	}
	e.checkPods(t)
	e.awaitRunning(len(ids))
	e.checkNodes(t, len(ids)-1, 1)
}

// awaitMembers waits until the etcd of each control plane answers.
func (e *env) awaitMembers(t *testing.T, wanted int) {
	t.Helper()
	config := e.credential("talosconfig")
	e.await(fmt.Sprintf("%d members of etcd answer", wanted), 5*time.Minute, func(ctx context.Context) error {
		for i := range wanted {
			if _, err := talosctl(ctx, "--talosconfig", config, "--nodes", e.controlPlane(t, i), "etcd", "status"); err != nil {
				return err
			}
		}
		return nil
	})
	e.step("the etcd of %d control planes answers", wanted)
}

// loseOneMember deletes the data of one of three control planes. Talos replaces its member of etcd by itself.
func (e *env) loseOneMember(t *testing.T) {
	e.loseData(t, 1)
	e.awaitMembers(t, 3)
	e.awaitRunning(4)
	e.checkNodes(t, 3, 1)
}

// backup takes one snapshot of the cluster's etcd.
const backup = `apiVersion: vitistack.io/v1alpha1
kind: EtcdBackup
metadata: {name: once}
spec:
  clusterName: ` + clusterName + `
  storageLocation: {type: local, path: lab}
`

// restore loses the data of etcd on all three control planes, and brings it back from a snapshot as the documentation of etcd-backup
// says, except that the cluster is not paused. An object that was deleted after the snapshot exists again.
func (e *env) restore(t *testing.T) {
	ctx, kept := t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}
	objects := e.workload().CoreV1().ConfigMaps("default")
	if _, err := objects.Create(ctx, kept, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	snapshot := e.takeSnapshot(t)
	if err := objects.Delete(ctx, kept.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}

	e.loseData(t, 0, 1, 2)
	e.awaitReason(t, v1alpha1.ConditionEtcdHealthy, "EtcdLost")
	e.recover(t, snapshot)
	if _, err := objects.Get(ctx, kept.Name, metav1.GetOptions{}); err != nil {
		t.Errorf("the object that was deleted after the snapshot: %v", err)
	}
}

// restoreMinority loses the data of two of three control planes, and brings etcd back from the data of the third, as the
// documentation of etcd-backup says, except that the cluster is not paused.
func (e *env) restoreMinority(t *testing.T) {
	ctx := t.Context()
	e.loseData(t, 1, 2)
	e.awaitReason(t, v1alpha1.ConditionEtcdHealthy, "EtcdUnavailable")
	to := t.TempDir()
	if _, err := talosctl(ctx, "--talosconfig", e.credential("talosconfig"), "--nodes", e.controlPlane(t, 0), "cp", "/var/lib/etcd/member/snap/db", to); err != nil {
		t.Fatal(err)
	}
	e.loseData(t, 0, 1, 2)
	e.recover(t, filepath.Join(to, "db"), "--recover-skip-hash-check")
}

// recover bootstraps etcd from a file on the first control plane, and waits until the others have joined it.
func (e *env) recover(t *testing.T, file string, flags ...string) {
	t.Helper()
	address := e.controlPlane(t, 0)
	e.await("the first control plane answers", time.Minute, func(ctx context.Context) error {
		_, err := talosctl(ctx, "--talosconfig", e.credential("talosconfig"), "--nodes", address, "version")
		return err
	})
	args := append([]string{"--talosconfig", e.credential("talosconfig"), "--nodes", address, "bootstrap", "--recover-from=" + file}, flags...)
	if _, err := talosctl(t.Context(), args...); err != nil {
		t.Fatal(err)
	}
	e.awaitMembers(t, 3)
	e.checkPods(t)
	e.awaitRunning(4)
	e.checkNodes(t, 3, 1)
}

// awaitReason waits until a condition of the cluster has a reason for being False.
func (e *env) awaitReason(t *testing.T, conditionType, wanted string) {
	t.Helper()
	e.await(conditionType+" is False with reason "+wanted, 5*time.Minute, func(context.Context) error {
		_, reason, message := condition(e.Get(engine.KubernetesClusters, namespace, clusterName), conditionType)
		if reason != wanted {
			return fmt.Errorf("it has the reason %q: %s", reason, message)
		}
		return nil
	})
	e.step("%s is False with reason %s", conditionType, wanted)
}

// takeSnapshot returns the file of a snapshot that etcd-backup has taken, whose checksum is correct.
func (e *env) takeSnapshot(t *testing.T) (path string) {
	t.Helper()
	e.Apply(namespace, backup)
	done := v1alpha1.EtcdBackup{}
	e.await("the snapshot is taken", 2*time.Minute, func(context.Context) error {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(e.Get(engine.EtcdBackups, namespace, "once").Object, &done); err != nil {
			return err
		}
		if len(done.Status.Backups) == 0 {
			return fmt.Errorf("phase %s: %v", done.Status.Phase, done.Status.Conditions)
		}
		return nil
	})
	err := filepath.WalkDir(filepath.Join(e.Dir, "backups"), func(file string, _ os.DirEntry, err error) error {
		if strings.HasSuffix(file, ".db") {
			path = file
		}
		return err
	})
	if err != nil || path == "" {
		t.Fatalf("find the snapshot: %q, %v", path, err)
	}
	check := exec.CommandContext(t.Context(), "sha256sum", "-c", filepath.Base(path)+".sha256")
	check.Dir = filepath.Dir(path)
	if out, err := check.CombinedOutput(); err != nil {
		t.Fatalf("sha256sum -c: %v\n%s", err, out)
	}
	e.step("etcd-backup has taken a snapshot of %s", done.Status.BackupSize)
	return path
}

// loseData empties the folder /var of some control planes, as talosctl reset --system-labels-to-wipe=EPHEMERAL does.
func (e *env) loseData(t *testing.T, controlPlanes ...int) {
	t.Helper()
	for _, i := range controlPlanes {
		id := e.nodeOf(t, fmt.Sprintf("%s-cp-%d", clusterName, i))
		e.power(id, "off")
		if err := os.RemoveAll(filepath.Join(lab.Talos(folder()).Nodes(), id, "disk", "var")); err != nil {
			t.Fatal(err)
		}
		e.power(id, "on")
	}
	e.step("control planes %v have lost the data of etcd", controlPlanes)
}

// controlPlane returns the address of a control plane.
func (e *env) controlPlane(t *testing.T, i int) string {
	t.Helper()
	address, err := addressOf(*e.Get(engine.Machines, namespace, fmt.Sprintf("%s-cp-%d", clusterName, i)))
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// nodeOf returns the ID of the node of a Machine.
func (e *env) nodeOf(t *testing.T, machine string) string {
	t.Helper()
	ids, err := nodeFolders()
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		guest, err := os.ReadFile(guestFile(id))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(guest, []byte(`"`+machine+`"`)) {
			return id
		}
	}
	t.Fatalf("Machine %s has no node", machine)
	return ""
}
