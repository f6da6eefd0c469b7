package kubevirt

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
)

//go:embed manifests/storage.yaml
var storageManifest string

// provisionVolumes creates the class local, and a PersistentVolume for each claim of it until the test ends, in the place of a storage provider.
// It is an empty folder of the node.
func (e *env) provisionVolumes() {
	e.T.Helper()
	e.Apply(storageManifest)
	ctx, cancel := context.WithCancel(e.T.Context())
	ended := make(chan struct{})
	e.T.Cleanup(func() {
		cancel()
		<-ended
	})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			if err := e.provisionPending(ctx); err != nil && ctx.Err() == nil {
				e.T.Logf("provision volumes: %v", err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(2 * time.Second):
			}
		}
	}()
}

// provisionPending creates a PersistentVolume for each claim that has none.
func (e *env) provisionPending(ctx context.Context) error {
	out, err := e.Run(ctx, "", "kubectl", "get", "pvc", "-A", "-o", "json")
	if err != nil {
		return err
	}
	var list corev1.PersistentVolumeClaimList
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		return err
	}
	for _, claim := range list.Items {
		if class := claim.Spec.StorageClassName; claim.Spec.VolumeName != "" || class == nil || *class != "local" {
			continue
		}
		if err := e.provision(ctx, claim); err != nil {
			return fmt.Errorf("PersistentVolumeClaim %s/%s: %w", claim.Namespace, claim.Name, err)
		}
	}
	return nil
}

func (e *env) provision(ctx context.Context, claim corev1.PersistentVolumeClaim) error {
	name := "pv-" + string(claim.UID)
	path := e.Path("disks", name)
	if err := os.MkdirAll(path, 0o755); err != nil {
		return err
	}
	if err := os.Chmod(path, 0o777); err != nil { // the users of CDI and QEMU write there
		return err
	}
	volume := fmt.Sprintf(`{apiVersion: v1, kind: PersistentVolume, metadata: {name: %s}, spec: {storageClassName: local, capacity: {storage: %q},
 accessModes: [ReadWriteOnce], persistentVolumeReclaimPolicy: Retain, hostPath: {path: %q}, claimRef: {namespace: %s, name: %s, uid: %s}}}`,
		name, claim.Spec.Resources.Requests.Storage(), path, claim.Namespace, claim.Name, claim.UID)
	_, err := e.Run(ctx, volume, "kubectl", "apply", "--server-side", "-f", "-")
	return err
}
