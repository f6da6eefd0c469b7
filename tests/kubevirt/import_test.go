package kubevirt

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

//go:embed manifests/cdi.yaml
var cdiManifest string

// installImporter installs the kinds of CDI, and fills each DataVolume with the image of Talos in the place of CDI until the test ends.
func (e *env) installImporter() {
	e.T.Helper()
	const crds = "tests/sim/kubevirt/crds/"
	e.Kubectl("apply", "--server-side", "-f", crds+"datavolumes.cdi.kubevirt.io.yaml", "-f", crds+"storageprofiles.cdi.kubevirt.io.yaml")
	e.Apply(cdiManifest)
	ctx, cancel := context.WithCancel(e.T.Context())
	ended := make(chan struct{})
	e.T.Cleanup(func() {
		cancel()
		<-ended
	})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			if err := e.importAll(ctx); err != nil && ctx.Err() == nil {
				e.T.Logf("import images: %v", err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}()
}

// importAll imports the images of all DataVolumes that have none.
func (e *env) importAll(ctx context.Context) error {
	out, err := e.Run(ctx, "", "kubectl", "get", "datavolumes", "-A", "-o", "json")
	if err != nil {
		return err
	}
	var list cdiv1.DataVolumeList
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		return err
	}
	for _, volume := range list.Items {
		if volume.Status.Phase == cdiv1.Succeeded || volume.DeletionTimestamp != nil {
			continue
		}
		if err := e.importImage(ctx, volume); err != nil {
			return fmt.Errorf("DataVolume %s: %w", volume.Name, err)
		}
	}
	return nil
}

// importImage creates the claim of a DataVolume, with a disk that has the image and the size of the claim.
func (e *env) importImage(ctx context.Context, volume cdiv1.DataVolume) error {
	if source := volume.Spec.Source; source == nil || source.HTTP == nil || !strings.Contains(source.HTTP.URL, "/nocloud-amd64") {
		return fmt.Errorf("it has the source %+v, want an image of Talos for the platform nocloud", volume.Spec.Source)
	}
	if err := e.createDisk(ctx, volume.Name, "talos.img", *volume.Spec.PVC.Resources.Requests.Storage()); err != nil {
		return err
	}
	owner, err := json.Marshal(metav1.NewControllerRef(&volume, cdiv1.SchemeGroupVersion.WithKind("DataVolume")))
	if err != nil {
		return err
	}
	claim, err := json.Marshal(volume.Spec.PVC)
	if err != nil {
		return err
	}
	manifest := fmt.Sprintf("{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {namespace: %s, name: %s, ownerReferences: [%s]}, spec: %s}",
		volume.Namespace, volume.Name, owner, claim)
	if _, err := e.Run(ctx, manifest, "kubectl", "apply", "--server-side", "-f", "-"); err != nil {
		return err
	}
	_, err = e.Run(ctx, "", "kubectl", "patch", "datavolume", volume.Name, "-n", volume.Namespace, "--subresource=status", "--type=merge",
		"-p", `{"status":{"phase":"Succeeded","progress":"100.0%","claimName":"`+volume.Name+`"}}`)
	return err
}
