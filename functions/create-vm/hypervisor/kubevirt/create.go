package kubevirt

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// creation is what createMachine has created.
type creation struct {
	vm *kubevirtv1.VirtualMachine
	// claims are the disks. CDI creates the claim of a disk with an image later.
	claims []corev1.PersistentVolumeClaim
	// hadClaims is whether an earlier attempt has created some of them. They may have another size than the spec.
	hadClaims bool
	// isConfigured is whether the Secret with the first configuration has the user data.
	isConfigured bool
}

// createMachine creates the disks, the network attachments and the first configuration of a machine,
// and last the virtual machine, which needs them.
func (k *Hypervisor) createMachine(ctx context.Context, m *v1alpha1.Machine, want hypervisor.Desired) (made creation, err error) {
	if want.UserDataError != nil {
		return made, want.UserDataError
	}
	if want.NetworkData != "" && want.UserData == "" {
		want.UserData = hypervisor.EmptyUserData
	}
	if err := checkImages(m.Spec.OS); err != nil {
		return made, err
	}
	if err := k.checkHost(ctx, m); err != nil {
		return made, err
	}
	class, err := k.resolveClasses(ctx, want.Disks)
	if err != nil {
		return made, err
	}
	if err := k.objects().ensureNamespace(ctx, m.Namespace); err != nil {
		return made, err
	}
	if made.claims, made.hadClaims, err = k.createClaims(ctx, m, want.Disks, class); err != nil {
		return made, err
	}
	if err := k.attachments().ensure(ctx, m, want, nil); err != nil {
		return made, err
	}
	secret := ""
	if needsSecret(want) {
		secret = kube.Name(m.Name, "cloudinit")
		if made.isConfigured, err = k.createConfig(ctx, m, cloudInitSecret(m, secret, want, k.local)); err != nil {
			return made, err
		}
	}
	if err := k.home.CheckSpecCurrent(ctx, m); err != nil { // the API server accepts no edit of most fields once the virtual machine exists
		return made, err
	}
	made.vm = renderVM(m, want, func(c string) string { return class[c] }, k.options, secret, k.local)
	err = k.guests.Create(ctx, made.vm)
	if kube.AlreadyExists(err) {
		err = k.guests.Get(ctx, m.Namespace, m.Name, made.vm)
	}
	return made, err
}

// createClaims creates the PersistentVolumeClaims of a machine. It skips disks with an image, whose claims CDI creates. class
// resolves the StorageClass of a disk. existed is whether some of the claims have existed.
func (k *Hypervisor) createClaims(ctx context.Context, m *v1alpha1.Machine, disks []hypervisor.Disk, class map[string]string) (claims []corev1.PersistentVolumeClaim, existed bool, err error) {
	for _, d := range disks {
		claim := renderClaim(m, d, class[d.StorageClass], k.local)
		if diskImage(m, disks, d) != "" {
			err = k.checkImageDisk(ctx, m, d.Name)
		} else {
			var created bool
			created, err = k.objects().create(ctx, m, claim)
			existed = existed || !created
			if err == nil && !created && m.Status.VMName == "" {
				err = checkClaim(d, claim)
			}
		}
		if err != nil {
			return nil, false, err
		}
		claims = append(claims, *claim)
	}
	if m.Spec.OS != nil && m.Spec.OS.ISOURI != "" {
		err = k.checkImageDisk(ctx, m, installerDisk)
	}
	return claims, existed, err
}

// checkImageDisk returns a UserError if the claim of a disk with an image exists before its virtual machine, because KubeVirt has CDI adopt any
// claim with the name of a DataVolume, whatever it contains (allowClaimAdoption): it belongs to another user, also by a DataVolume, or
// an earlier attempt has created it empty for a machine that has got an image since. CDI marks the claims that it fills by a label.
func (k *Hypervisor) checkImageDisk(ctx context.Context, m *v1alpha1.Machine, disk string) error {
	claim := &corev1.PersistentVolumeClaim{}
	err := k.guests.Get(ctx, m.Namespace, claimName(m, disk), claim)
	switch {
	case kube.NotFound(err):
		return k.checkDataVolume(ctx, m, disk)
	case err != nil:
		return err
	case isMadeFor(claim, m) && (claim.Labels[v1alpha1.AnnotationUID] != "" || m.Status.VMName != ""):
		return nil
	case isMadeFor(claim, m):
		return reconcile.UserError{Reason: "InvalidSpec", Message: fmt.Sprintf("disk %s exists without the image: remove spec.os.imageID, or delete the Machine and create it again", disk)}
	}
	return k.objects().takeExisting(ctx, m, claim)
}

// checkDataVolume returns a UserError if a DataVolume has the name of a disk whose claim CDI has not created yet, and was not created for the
// machine: KubeVirt takes any DataVolume with the name of a template, and the machine would start from its contents. The claim of an
// adoptable one has to exist first, because the claim is what the machine adopts.
func (k *Hypervisor) checkDataVolume(ctx context.Context, m *v1alpha1.Machine, disk string) error {
	dv := &cdiv1.DataVolume{}
	err := k.guests.Get(ctx, m.Namespace, claimName(m, disk), dv)
	switch {
	case kube.NotFound(err): // also where CDI is not installed
		return nil
	case err != nil:
		return err
	case dv.DeletionTimestamp != nil:
		return fmt.Errorf("create disk %s of machine %s/%s: DataVolume %s is still being deleted", disk, m.Namespace, m.Name, dv.Name)
	case isMadeFor(dv, m):
		return nil
	case isAdoptable(dv, m):
		return fmt.Errorf("adopt disk %s of machine %s/%s: DataVolume %s has no PersistentVolumeClaim yet", disk, m.Namespace, m.Name, dv.Name)
	}
	return reconcile.UserError{Reason: "NameTaken", Message: fmt.Sprintf("DataVolume %s was not created for this machine: delete it, or give the machine another name", dv.Name)}
}

// checkClaim returns a UserError if a disk that exists is not as its spec says. While the machine has no virtual machine, the API
// server accepts changes of these fields, which no PersistentVolumeClaim can follow. What the spec leaves out is as it was created.
func checkClaim(d hypervisor.Disk, has *corev1.PersistentVolumeClaim) error {
	class := ""
	if has.Spec.StorageClassName != nil {
		class = *has.Spec.StorageClassName
	}
	for _, f := range []struct{ field, is, want string }{ // the API server sets both modes
		{"storageClass", class, d.StorageClass},
		{"accessMode", string(has.Spec.AccessModes[0]), string(d.AccessMode)},
		{"volumeMode", string(*has.Spec.VolumeMode), string(d.VolumeMode)},
	} {
		if f.want != "" && f.want != hypervisor.DefaultClass && f.want != f.is {
			return reconcile.UserError{Reason: "InvalidSpec", Message: fmt.Sprintf("disk %s exists with %s %s, which cannot be changed to %s: write %s into spec.disks, or delete the Machine and create it again",
				d.Name, f.field, f.is, f.want, f.is)}
		}
	}
	return nil
}

// checkHost returns a UserError if the host that spec.nodeName names does not exist. It runs
// before anything is created, while spec.nodeName can be changed.
func (k *Hypervisor) checkHost(ctx context.Context, m *v1alpha1.Machine) error {
	host, field := m.Spec.NodeName, "spec.nodeName"
	if host == "" {
		host, field = k.defaults.NodeName, "spec.defaults.nodeName of MachineProvider "+k.provider
	}
	if host == "" {
		return nil
	}
	nodes := &corev1.NodeList{}
	if err := k.guests.List(ctx, "", "", nodes); err != nil {
		return err
	}
	var names []string
	for _, n := range nodes.Items {
		if n.Labels[corev1.LabelHostname] == host {
			return nil
		}
		if n.Labels[kubevirtv1.NodeSchedulable] == "true" {
			names = append(names, n.Labels[corev1.LabelHostname])
		}
	}
	slices.Sort(names)
	return reconcile.UserError{Reason: "NodeNotFound", Message: fmt.Sprintf("no host is called %s: write one of %s into %s, or leave it out", host, strings.Join(names, ", "), field)}
}

// createConfig creates the Secret with the first configuration of a machine, and reports whether it has the data of secret. A
// machine that has had no virtual machine may have another configuration by now than the Secret, which no guest has read. If
// the Machine has been written since it was read, createConfig returns an error for which kube.Conflict is true: another delivery may have
// written the Secret by the changed spec, or removed the machine configuration of a node from it.
func (k *Hypervisor) createConfig(ctx context.Context, m *v1alpha1.Machine, secret *corev1.Secret) (isConfigured bool, err error) {
	data := secret.Data
	created, err := k.objects().create(ctx, m, secret)
	if err != nil || created || m.Status.VMName != "" {
		return created, err
	}
	before := secret.DeepCopy()
	secret.Data = data
	if maps.EqualFunc(before.Data, data, bytes.Equal) {
		return true, nil
	}
	if err := k.home.CheckUnchanged(ctx, m); err != nil { // after the Secret was read: Patch notices a later write
		return false, err
	}
	_, err = k.guests.Patch(ctx, before, secret)
	return err == nil, err
}

// cloudInitSecret renders the Secret with the first configuration of a guest.
func cloudInitSecret(m *v1alpha1.Machine, name string, w hypervisor.Desired, owned bool) *corev1.Secret {
	data := map[string][]byte{}
	if w.UserData != "" {
		data["userdata"] = []byte(w.UserData)
	}
	if w.NetworkData != "" {
		data["networkdata"] = []byte(w.NetworkData)
	}
	return &corev1.Secret{ObjectMeta: objectMeta(m, name, owned), Data: data}
}
