package kubevirt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// Hypervisor creates virtual machines as VirtualMachine objects of a cluster.
type Hypervisor struct {
	// home is the cluster of the Machines, guests the one of the virtual machines.
	home, guests *kube.Client
	// local is whether the two are the same, so that Machines can own what is made
	// for them.
	local bool
	// provider is the name of the MachineProvider.
	provider string
	options  v1alpha1.KubeVirtOptions
	defaults v1alpha1.ProviderDefaults
}

// Ensure implements hypervisor.
func (k *Hypervisor) Ensure(ctx context.Context, m *v1alpha1.Machine, want hypervisor.Desired) (hypervisor.State, error) {
	want.Defaults = k.defaults
	vm := &kubevirtv1.VirtualMachine{}
	err := k.guests.Get(ctx, m.Namespace, m.Name, vm)
	existed := err == nil
	var made []corev1.PersistentVolumeClaim
	if kube.NotFound(err) {
		vm, made, err = k.createMachine(ctx, m, want)
	}
	if err != nil {
		return hypervisor.State{}, k.asUserError(err)
	}
	if !isMadeFor(vm, m) {
		return hypervisor.State{}, nameTakenError(vm)
	}
	if existed {
		if err := k.update(ctx, m, want, vm); err != nil {
			return hypervisor.State{}, k.asUserError(err)
		}
	}
	if err := k.handOverMachineConfig(ctx, m, want, vm); err != nil {
		return hypervisor.State{}, k.asUserError(err)
	}
	s, err := k.readState(ctx, m, vm, made)
	if err != nil {
		return hypervisor.State{}, err
	}
	s.Handover = want.Handover
	return s, k.restart(ctx, m, vm, &s)
}

// Observe implements observer.
func (k *Hypervisor) Observe(ctx context.Context, m *v1alpha1.Machine) (hypervisor.State, error) {
	vm := &kubevirtv1.VirtualMachine{}
	if err := k.guests.Get(ctx, m.Namespace, m.Name, vm); err != nil {
		if kube.NotFound(err) {
			return hypervisor.State{}, hypervisor.ErrGone
		}
		return hypervisor.State{}, err
	}
	if !isMadeFor(vm, m) {
		return hypervisor.State{}, nameTakenError(vm)
	}
	return k.readState(ctx, m, vm, nil)
}

func nameTakenError(vm *kubevirtv1.VirtualMachine) error {
	return reconcile.UserError{Reason: "VirtualMachineNameTaken", Message: fmt.Sprintf(
		"VirtualMachine %s was not made for this machine: delete it, or give the machine another name", vm.Name)}
}

// readState reads the state of a virtual machine: of its instance if it runs, and of its disks if
// it does not. claims are disks that were just created.
func (k *Hypervisor) readState(ctx context.Context, m *v1alpha1.Machine, vm *kubevirtv1.VirtualMachine, claims []corev1.PersistentVolumeClaim) (hypervisor.State, error) {
	s := vmState(vm, m.Status.Phase, m.Spec.PowerState)
	s.ProviderID, s.Polled = k.providerID(m), !k.local
	s.RestartToken = m.Status.RestartToken
	if s.Phase == v1alpha1.MachineRunning && vm.Status.Created {
		vmi := &kubevirtv1.VirtualMachineInstance{}
		err := k.guests.Get(ctx, m.Namespace, m.Name, vmi)
		if err == nil {
			addInstanceState(&s, vmi)
			s.StoragePending = unpluggedDisks(vm, vmi)
		}
		if err != nil && !kube.NotFound(err) {
			return hypervisor.State{}, err
		}
	}
	if s.StoragePending != "" || (meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionStorageReady) && s.Reason != "Provisioning") {
		return s, nil
	}
	if len(claims) == 0 {
		var err error
		if claims, err = k.listClaims(ctx, m); err != nil {
			return hypervisor.State{}, err
		}
	}
	s.StoragePending = pendingClaims(claims)
	if s.StoragePending == "" && m.Status.Phase != v1alpha1.MachineRunning {
		countProvisionedDisks(claims, time.Now())
	}
	return s, nil
}

// listClaims returns the PersistentVolumeClaims of a machine.
func (k *Hypervisor) listClaims(ctx context.Context, m *v1alpha1.Machine) ([]corev1.PersistentVolumeClaim, error) {
	claims := &corev1.PersistentVolumeClaimList{}
	if err := k.guests.List(ctx, m.Namespace, v1alpha1.LabelMachine+"="+m.Name, claims); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(claims.Items, func(c corev1.PersistentVolumeClaim) bool { return !isMadeFor(&c, m) }), nil
}

// providerID returns the name of a machine's virtual machine that is unique among all hypervisors.
func (k *Hypervisor) providerID(m *v1alpha1.Machine) string {
	if k.local {
		return hypervisor.LocalID(m.Namespace, m.Name)
	}
	return "kubevirt://" + k.provider + "/" + m.Namespace + "/" + m.Name
}

// createMachine creates the disks, the network attachments and the first configuration of a machine,
// and last the virtual machine, which needs them. It returns the virtual machine and the
// disks.
func (k *Hypervisor) createMachine(ctx context.Context, m *v1alpha1.Machine, want hypervisor.Desired) (*kubevirtv1.VirtualMachine, []corev1.PersistentVolumeClaim, error) {
	if want.NetworkData != "" && want.UserData == "" {
		want.UserData = hypervisor.EmptyUserData
	}
	if err := checkImages(m.Spec.OS); err != nil {
		return nil, nil, err
	}
	if err := k.checkHost(ctx, m); err != nil {
		return nil, nil, err
	}
	class, err := k.resolveClasses(ctx, want.Disks)
	if err != nil {
		return nil, nil, err
	}
	if err := k.ensureNamespace(ctx, m.Namespace); err != nil {
		return nil, nil, err
	}
	var claims []corev1.PersistentVolumeClaim
	for _, d := range want.Disks {
		if diskImage(m, want.Disks, d) != "" {
			continue
		}
		claim := renderClaim(m, d, class[d.StorageClass], k.local)
		if err := k.createObject(ctx, m, claim); err != nil {
			return nil, nil, err
		}
		claims = append(claims, *claim)
	}
	if err := k.ensureAttachments(ctx, m, want); err != nil {
		return nil, nil, err
	}
	secret := ""
	if needsSecret(want) {
		secret = kube.Name(m.Name, "cloudinit")
		if err := k.createObject(ctx, m, cloudInitSecret(m, secret, want, k.local)); err != nil {
			return nil, nil, err
		}
	}
	vm := renderVM(m, want, func(c string) string { return class[c] }, k.options, secret, k.local)
	err = k.guests.Create(ctx, vm)
	if kube.AlreadyExists(err) {
		err = k.guests.Get(ctx, m.Namespace, m.Name, vm)
	}
	return vm, claims, err
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

// resolveClasses returns the StorageClasses of disks.
func (k *Hypervisor) resolveClasses(ctx context.Context, disks []hypervisor.Disk) (map[string]string, error) {
	classes := &storagev1.StorageClassList{}
	if err := k.guests.List(ctx, "", "", classes); err != nil {
		return nil, err
	}
	class := map[string]string{}
	for _, d := range append(slices.Clone(disks), hypervisor.Disk{}) {
		name, err := resolveClass(classes.Items, d.StorageClass, k.defaults.StorageClass)
		if err != nil && d.Name != "" {
			return nil, err
		}
		class[d.StorageClass] = name
	}
	return class, nil
}

// ensureNamespace creates the namespace of a machine if its virtual machines are in another
// cluster.
func (k *Hypervisor) ensureNamespace(ctx context.Context, namespace string) error {
	if k.local {
		return nil
	}
	err := k.guests.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: namespace, Labels: map[string]string{v1alpha1.LabelManagedBy: managedBy},
	}})
	if kube.AlreadyExists(err) {
		return nil
	}
	return err
}

// createObject creates an object of a machine, unless it exists.
func (k *Hypervisor) createObject(ctx context.Context, m *v1alpha1.Machine, obj kube.Object) error {
	err := k.guests.Create(ctx, obj)
	if !kube.AlreadyExists(err) {
		return err
	}
	if err := k.guests.Get(ctx, m.Namespace, obj.GetName(), obj); err != nil {
		return err
	}
	switch {
	case obj.GetDeletionTimestamp() != nil:
		return fmt.Errorf("create %T %s/%s: an earlier one is still being deleted", obj, m.Namespace, obj.GetName())
	case !isMadeFor(obj, m):
		return reconcile.UserError{Reason: "NameTaken", Message: fmt.Sprintf("%T %s was not made for this machine: delete it, or give the machine another name", obj, obj.GetName())}
	}
	return nil
}

// handOverMachineConfig gives or takes the machine configuration of a node: in the Secret of its
// first configuration, which KubeVirt reads at each start of an instance.
func (k *Hypervisor) handOverMachineConfig(ctx context.Context, m *v1alpha1.Machine, want hypervisor.Desired, vm *kubevirtv1.VirtualMachine) error {
	if want.Handover == hypervisor.HandoverNone {
		return nil
	}
	secret := &corev1.Secret{}
	err := k.guests.Get(ctx, m.Namespace, kube.Name(m.Name, "cloudinit"), secret)
	if err != nil && !kube.NotFound(err) {
		return err
	}
	if err != nil || !isMadeFor(secret, m) {
		if want.Handover == hypervisor.HandoverTake {
			return nil
		}
		return reconcile.UserError{Reason: "CloudInitSecretNotFound", Message: fmt.Sprintf("VirtualMachine %s has no Secret for a machine configuration: delete Machine %s, and its cluster makes another", vm.Name, m.Name)}
	}
	before := secret.DeepCopy()
	secret.Data["userdata"] = []byte(want.UserData)
	_, err = k.guests.Patch(ctx, before, secret)
	return err
}

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

// Remove implements hypervisor.
func (k *Hypervisor) Remove(ctx context.Context, m *v1alpha1.Machine) (string, error) {
	vm := &kubevirtv1.VirtualMachine{}
	gone, err := k.deleteObject(ctx, m, m.Name, vm)
	if err != nil || !gone {
		return "VirtualMachine " + m.Name, err
	}
	gone, err = k.deleteObject(ctx, m, m.Name, &kubevirtv1.VirtualMachineInstance{})
	if err != nil || !gone {
		return "VirtualMachineInstance " + m.Name, err
	}
	claims, err := k.listClaims(ctx, m)
	if err != nil {
		return "", err
	}
	waitsFor := ""
	for i := range claims {
		c := &claims[i]
		if gone, err := k.deleteObject(ctx, m, c.Name, c); err != nil {
			return "", err
		} else if !gone {
			waitsFor = "PersistentVolumeClaim " + c.Name
		}
	}
	if waitsFor != "" {
		return waitsFor, nil
	}
	_, err = k.deleteObject(ctx, m, kube.Name(m.Name, "cloudinit"), &corev1.Secret{})
	return "", k.secretError(err)
}

// secretError is reconcile.SecretsError for this cluster. Rights in another cluster come with
// its kubeconfig.
func (k *Hypervisor) secretError(err error) error {
	if k.local {
		return reconcile.SecretsError(err, hypervisor.FunctionName)
	}
	return err
}

// deleteObject deletes one object that was created for the machine, and reports whether it is gone.
func (k *Hypervisor) deleteObject(ctx context.Context, m *v1alpha1.Machine, name string, obj kube.Object) (bool, error) {
	for range 2 {
		err := k.guests.Get(ctx, m.Namespace, name, obj)
		if kube.NotFound(err) || (err == nil && !isMadeFor(obj, m)) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		if obj.GetDeletionTimestamp() != nil {
			return false, nil
		}
		if err := k.guests.Delete(ctx, obj); err != nil {
			return false, err
		}
	}
	return false, nil
}

// isMadeFor reports whether an object was created for the machine, and not for a deleted one
// of the same name or by another user. CDI copies only the labels of a DataVolume to its
// claim, so that claims bear the UID in a label.
func isMadeFor(obj kube.Object, m *v1alpha1.Machine) bool {
	uid, ok := obj.GetAnnotations()[v1alpha1.AnnotationUID]
	if !ok {
		uid = obj.GetLabels()[v1alpha1.AnnotationUID]
	}
	return uid == string(m.UID)
}

// asUserError returns a UserError for what the cluster of the virtual machines refuses, and
// any other error as it is.
func (k *Hypervisor) asUserError(err error) error {
	if apierrors.IsUnauthorized(err) && !k.local {
		return reconcile.UserError{Reason: "CredentialsInvalid", Message: fmt.Sprintf("the cluster of MachineProvider %s does not accept its credentials: renew the kubeconfig in their Secret", k.provider)}
	}
	if err = k.secretError(err); errors.As(err, new(reconcile.UserError)) {
		return err
	}
	if message, ok := kube.Refused(err); ok {
		return reconcile.UserError{Reason: "KubeVirtApiError", Message: message}
	}
	if kube.NotFound(err) {
		return reconcile.UserError{Reason: "KubeVirtApiError", Message: "KubeVirt, its network attachments or its data importer are not installed in the cluster: " + err.Error()}
	}
	return err
}
