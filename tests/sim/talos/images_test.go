package talos_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"google.golang.org/grpc/codes"

	"github.com/vitistack/stack/tests/sim/talos"
)

// TestStaticPodPull changes the API server's image: the node is without an API server while its kubelet pulls, which it does
// not do if the image is there.
func TestStaticPodPull(t *testing.T) {
	t.Parallel()
	r := newRack(t, "v1.13.9", talos.Timing{StaticPodPull: time.Hour})
	c := r.cluster(1, 0)
	change := func(version string) {
		t.Helper()
		if _, err := c.ApplyConfiguration(t.Context(), &machineapi.ApplyConfigurationRequest{
			Data: r.config(machine.TypeControlPlane, r.hostname("cp-2"), "cluster: {apiServer: {image: 'registry.k8s.io/kube-apiserver:"+version+"'}}"),
			Mode: machineapi.ApplyConfigurationRequest_NO_REBOOT,
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.ImagePull(t.Context(), common.ContainerdNamespace_NS_CRI, "registry.k8s.io/kube-apiserver:v1.34.2"); err != nil {
		t.Fatal(err)
	}
	change("v1.34.2")
	k := r.kube()
	r.eventually("the API server with the image in the store runs", func(context.Context) error {
		v, err := k.Discovery().ServerVersion()
		if err == nil && v.GitVersion != "v1.34.2" {
			err = fmt.Errorf("it is %s", v.GitVersion)
		}
		return err
	})
	change("v1.34.3")
	r.eventually("the API server has ended", func(context.Context) error {
		if _, err := k.Discovery().ServerVersion(); err == nil {
			return errors.New("it answers")
		}
		return nil
	})
	time.Sleep(time.Second)
	if _, err := k.Discovery().ServerVersion(); err == nil {
		t.Error("the API server runs without its image")
	}
}

// TestUnpublishedRelease gives a worker, and then a control plane, images of a release that does not exist. The kubelet
// prepares and does not run, while the static pods of a running node stay. The released images bring both back.
func TestUnpublishedRelease(t *testing.T) {
	t.Parallel()
	r := newRack(t, "v1.13.9", talos.Timing{})
	r.cluster(1, 1)
	const kubelet, apiServer = "ghcr.io/siderolabs/kubelet:v1.34.99", "registry.k8s.io/kube-apiserver:v1.34.99"
	for _, image := range []string{kubelet, apiServer} {
		if err := r.client(3).ImagePull(t.Context(), common.ContainerdNamespace_NS_SYSTEM, image); client.StatusCode(err) != codes.NotFound {
			t.Errorf("pull %s: got %v, want the code NotFound", image, err)
		}
	}
	change := func(n int, kind machine.Type, name string, patches ...string) {
		t.Helper()
		_, err := r.client(n).ApplyConfiguration(t.Context(), &machineapi.ApplyConfigurationRequest{
			Data: r.config(kind, append([]string{r.hostname(name)}, patches...)...), Mode: machineapi.ApplyConfigurationRequest_NO_REBOOT,
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	state := func(n int) string {
		list, err := r.client(n).ServiceInfo(t.Context(), "kubelet")
		if err != nil || len(list) != 1 {
			return fmt.Sprint(list, err)
		}
		return list[0].Service.State
	}

	change(3, machine.TypeWorker, "worker-3", "machine: {kubelet: {image: '"+kubelet+"'}}")
	r.eventually("the worker is not Ready", func(ctx context.Context) error {
		ready, err := readyNodes(ctx, r.kube())
		if err == nil && !slices.Equal(ready, []string{"cp-2"}) {
			err = fmt.Errorf("ready are %v", ready)
		}
		return err
	})
	if got := state(3); got != "Preparing" {
		t.Errorf("the kubelet is %s, want Preparing", got)
	}
	change(2, machine.TypeControlPlane, "cp-2", "cluster: {apiServer: {image: '"+apiServer+"'}}")
	c := r.kube()
	r.eventually("the API server does not answer", func(context.Context) error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := readyNodes(ctx, c); err == nil {
			return fmt.Errorf("it answers")
		}
		return nil
	})
	change(2, machine.TypeControlPlane, "cp-2")
	change(3, machine.TypeWorker, "worker-3")
	r.nodesReady(2)
}
