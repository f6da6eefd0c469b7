package kubevirt

import (
	"context"
	_ "embed"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/stack/tests/stand/knative"
	"github.com/vitistack/stack/tests/stand/kubernetes"
)

//go:embed manifests/cluster.yaml
var clusterManifest string

const clusterName = "real"

// eventsPort is the port of the node for the events of guests.
const eventsPort = "30993"

// clusterTimeout is the longest time until an emulated machine has booted Talos and Kubernetes.
const clusterTimeout = 25 * time.Minute

// answerTimeout is the longest time until Talos answers, which an emulated machine does within three minutes. Later it hangs: two controllers of Talos
// 1.13 read the disk of cloud-init, and the one that has finished destroys the volume for which the other one waits (ReadFromVolume of
// internal/app/machined/pkg/runtime/v1alpha1/platform/internal/blockutils). Its console ends with "downloading config".
const answerTimeout = 5 * time.Minute

// statusPause is the pause between two looks at the status of the cluster.
const statusPause = 5 * time.Second

// talosFolder returns the folder of tests/talos/build.sh, or an empty string if the test was not requested.
func talosFolder() string { return os.Getenv("VITI_TALOS") }

// knativeFolder returns the folder of tests/stand/knative/build.sh.
func knativeFolder() string { return os.Getenv("VITI_NODE") }

func (e *env) knative() *knative.Cluster { return knative.New(e.Cluster, knativeFolder()) }

// stackValues are the values of the chart. The test is the image factory, and guests send their events to a port of the node.
const stackValues = "talos: {imageFactory: http://" + imageServer + "}\n" +
	`nodeEvents: {enabled: true, endpoint: "` + kubernetes.Address + ":" + eventsPort + `", service: {type: NodePort, nodePort: ` + eventsPort + "}}\n"

// TestCluster creates a cluster of Talos in a virtual machine of KubeVirt, by the stack on Knative, and deletes it. No part of the path from the
// cluster's YAML to its Node is a simulator. The steps depend on each other.
func TestCluster(t *testing.T) {
	if talosFolder() == "" || knativeFolder() == "" {
		t.Skip("run make test-kubevirt-talos as root")
	}
	e := newEnv(t, knative.Programs(knativeFolder()))
	e.knative().Serve(append(images(), talosImages()...)...)
	e.serveImages(map[string]string{"/image/{schematic}/{version}/nocloud-amd64.raw.xz": "talos.raw.xz"})
	_ = e.startHypervisor(t) &&
		e.run(t, "Knative", func(e *env) { e.knative().EnforcePolicies(); e.knative().Install(ignore) }) &&
		e.run(t, "Stack", func(e *env) { e.knative().InstallStack(stackValues, ignore) }) &&
		e.run(t, "Cluster", (*env).runCluster)
}

// runCluster creates a cluster by the stack on the KubeVirt of its own node.
func (e *env) runCluster() {
	s := &stack{env: e, home: e.Kubeconfig()}
	s.applyWith(clusterManifest, "CLUSTER", clusterName, "VERSION", kubernetes.Version, "REGISTRY", kubernetes.Registry)
	s.awaitCluster(s.favorGuest(""))
	s.requireEmulation()
	s.requireNode()

	s.inStack("", "delete", "kubernetescluster", clusterName, "--timeout=300s")
	s.awaitDeleted("vm,vmi,dv,pvc,pods,secrets")
	e.Step("the cluster is deleted with everything that was created for it")
	e.knative().RequireNoneRefused()
}

// favorGuest gives the pod of the virtual machine more of the processors than other pods. It waits for another pod than the former one, and returns
// the pod's UID.
func (s *stack) favorGuest(former string) (uid string) {
	s.T.Helper()
	s.Await("the virtual machine has a pod", 2*time.Minute, func(ctx context.Context) error {
		uids, err := s.Run(ctx, "", "kubectl", "get", "pod", "-l", "vm.kubevirt.io/name="+clusterName+"-cp-0", "-o", "jsonpath={.items[*].metadata.uid}")
		if err != nil {
			return err
		}
		for uid = range strings.FieldsSeq(uids) {
			if uid != former {
				return s.Favor(uid)
			}
		}
		return fmt.Errorf("its pods are %q", uids)
	})
	return uid
}

// awaitCluster waits until the cluster is Running, and prints each message on the way. It restarts a node that hangs, as
// users would. pod is the UID of the pod of its virtual machine.
func (s *stack) awaitCluster(pod string) {
	s.T.Helper()
	last, restart := "", time.Now().Add(answerTimeout)
	s.Await("the cluster is Running", clusterTimeout, func(ctx context.Context) error {
		cluster, err := s.status(ctx, "kubernetescluster/"+clusterName)
		if err != nil {
			return err
		}
		ready := ""
		for _, c := range cluster.Conditions {
			if c.Type == "Ready" {
				ready = c.Reason + ": " + c.Message
			}
		}
		if ready != last {
			s.Step("%s: %s", cluster.Phase, ready)
			last = ready
		}
		if cluster.Phase == "Running" {
			return nil
		}
		if strings.HasPrefix(ready, "WaitingForNode:") && time.Now().After(restart) {
			s.Step("Talos does not answer: restart its Machine")
			s.inStack("", "patch", "machine", clusterName+"-cp-0", "--type=merge", "--patch", `{"spec":{"restartToken":"`+time.Now().Format(time.RFC3339)+`"}}`)
			pod = s.favorGuest(pod)
			restart = time.Now().Add(answerTimeout)
		}
		select { // each kubectl takes processor time from the guest
		case <-ctx.Done():
		case <-time.After(statusPause):
		}
		return fmt.Errorf("it is %s: %s", cluster.Phase, ready)
	})
	s.Step("the cluster is Running")
}

// requireNode fails the test unless the cluster's own API, with the kubeconfig of its requester, has one Node, of Talos, that is Ready.
func (s *stack) requireNode() {
	s.T.Helper()
	kubeconfig, err := base64.StdEncoding.DecodeString(s.inStack("", "get", "secret", clusterName+"-kubeconfig", "-o", "jsonpath={.data.kubeconfig}"))
	if err != nil {
		s.T.Fatal(err)
	}
	path := filepath.Join(s.T.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, kubeconfig, 0o600); err != nil {
		s.T.Fatal(err)
	}
	out := s.Must(time.Minute, "kubectl", "--kubeconfig", path, "get", "nodes", "-o",
		`jsonpath={range .items[*]}{.status.nodeInfo.osImage}, Linux {.status.nodeInfo.kernelVersion}, {.status.nodeInfo.kubeletVersion}: Ready {.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}`)
	if strings.Count(out, "Ready True") != 1 || !strings.HasPrefix(out, "Talos") || !strings.Contains(out, "v"+kubernetes.Version) {
		s.T.Fatalf("the cluster has the nodes %q, want one of Talos with v%s", out, kubernetes.Version)
	}
	s.Step("the cluster's API has the Node: %s", strings.TrimSpace(out))
}
