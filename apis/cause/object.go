// Package cause follows an object that is not Ready to the object that is the cause, and says
// what to do and whose turn it is. It also lists what needs attention, and what belongs to an
// object. It has no client and no clock: the caller reads the objects and passes them in.
package cause

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
)

// Ref names an object. Namespace is empty for an object of the whole cluster.
type Ref struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// String returns the kind and the name, for example Machine shop/web.
func (r Ref) String() string {
	if r.Namespace == "" {
		return r.Kind + " " + r.Name
	}
	return r.Kind + " " + r.Namespace + "/" + r.Name
}

// Object is the part of an object that the package reads.
type Object struct {
	Ref
	UID      string
	Created  time.Time
	Deleting bool
	// paused is the Warning about the annotation vitistack.io/paused, or nil.
	paused                         *Warning
	Generation, ObservedGeneration int64
	Phase                          string
	Conditions                     []metav1.Condition
	// templateAdvice is the advice about the ClusterTemplate of the object, by reason.
	templateAdvice map[string]Advice
	// Detail is what a tree shows beside the state, for example addresses.
	Detail string
	// uses are the objects that this one needs, in the order in which it needs them, and owner is
	// the object that it was created for.
	uses  []Ref
	owner Ref
	// parts are what an object has that is not an object of its own, with their states.
	parts []Part
	// anyNetwork is whether the object is in the only NetworkNamespace of its namespace.
	anyNetwork bool
	// holder is the UID of the object that a Lease belongs to.
	holder string
}

// Part is something that an object has and that is no object of its own, such as an interface.
type Part struct {
	Name   string `json:"name"`
	Detail string `json:"detail,omitempty"`
}

// ready returns the condition Ready, or an empty one.
func (o *Object) ready() metav1.Condition {
	if c := meta.FindStatusCondition(o.Conditions, v1alpha1.ConditionReady); c != nil {
		return *c
	}
	return metav1.Condition{}
}

// reporting are the kinds with the condition Ready.
var reporting = []string{kindNetwork, kindConfiguration, kindAllocation, kindMachine, kindProvider, kindCluster, kindBackup, kindTemplate}

// reports reports whether objects of the kind have the condition Ready.
func (o *Object) reports() bool { return slices.Contains(reporting, o.Kind) }

// IsReady reports whether the object is as its spec wants it. An object that is being deleted is
// not, and a Machine that is stopped on purpose is.
func (o *Object) IsReady() bool {
	switch {
	case !o.reports():
		return !o.Deleting
	case o.Deleting:
		return false
	case o.Kind == kindMachine && o.ready().Reason == "Stopped":
		return true
	default:
		return o.ready().Status == metav1.ConditionTrue && o.ObservedGeneration >= o.Generation
	}
}

// Decode reads an object as the API server returns it. Kinds of other projects have their
// metadata and status.phase.
func Decode(u *unstructured.Unstructured) (*Object, error) {
	o := &Object{
		Ref: Ref{u.GetKind(), u.GetNamespace(), u.GetName()}, UID: string(u.GetUID()), Created: u.GetCreationTimestamp().Time,
		Deleting: u.GetDeletionTimestamp() != nil, Generation: u.GetGeneration(), paused: pauseOf(u.GetKind(), u),
	}
	if c := metav1.GetControllerOf(u); c != nil {
		o.owner = Ref{c.Kind, u.GetNamespace(), c.Name}
	} else if owners := u.GetOwnerReferences(); len(owners) > 0 {
		o.owner = Ref{owners[0].Kind, u.GetNamespace(), owners[0].Name}
	}
	read, ok := readers[o.Kind]
	if !ok || !strings.HasPrefix(u.GetAPIVersion(), v1alpha1.GroupVersion.Group+"/") {
		o.readForeign(u)
		return o, nil
	}
	if err := read(o, u.Object); err != nil {
		return nil, fmt.Errorf("read %s: %w", o.Ref, err)
	}
	o.templateAdvice = TemplateAdvice(o.Kind, u, o.Conditions)
	return o, nil
}

// readers read what is particular to a kind of the stack.
var readers = map[string]func(*Object, map[string]any) error{
	kindNetwork:       reader((*Object).readNetwork),
	kindConfiguration: reader((*Object).readConfiguration),
	kindAllocation:    reader((*Object).readAllocation),
	kindMachine:       reader((*Object).readMachine),
	kindProvider:      reader((*Object).readProvider),
	kindCluster:       reader((*Object).readCluster),
	kindBackup:        reader((*Object).readBackup),
	kindTemplate:      reader((*Object).readTemplate),
}

func reader[T any](read func(*Object, *T)) func(*Object, map[string]any) error {
	return func(o *Object, raw map[string]any) error {
		typed := new(T)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw, typed); err != nil {
			return err
		}
		read(o, typed)
		return nil
	}
}

// use adds objects of the namespace that the object needs. Empty names are left out.
func (o *Object) use(kind string, names ...string) {
	for _, name := range names {
		namespace := o.Namespace
		if kind == kindProvider {
			namespace = ""
		}
		if r := (Ref{kind, namespace, name}); name != "" && !slices.Contains(o.uses, r) {
			o.uses = append(o.uses, r)
		}
	}
}

func (o *Object) part(name, detail string) { o.parts = append(o.parts, Part{name, detail}) }

func (o *Object) readNetwork(n *v1alpha2.NetworkNamespace) {
	s := n.Status
	o.ObservedGeneration, o.Phase, o.Conditions = s.ObservedGeneration, string(s.ProvisioningPhase), s.Conditions
	o.Detail = join(s.IPv4Prefix, s.IPv6Prefix, vlan(s.VLANID))
	if a := s.IPAllocationSummary; a != nil && a.TotalCount > 0 {
		o.part("addresses", fmt.Sprintf("%d of %d allocated", a.AllocatedCount, a.TotalCount))
	}
}

func (o *Object) readConfiguration(c *v1alpha1.NetworkConfiguration) {
	s := c.Status
	o.ObservedGeneration, o.Phase, o.Conditions = s.ObservedGeneration, string(s.Phase), s.Conditions
	network := c.Spec.NetworkNamespaceName
	if network == "" {
		network = s.NetworkNamespaceName
	}
	o.use(kindNetwork, network)
	o.anyNetwork = network == ""
	for _, i := range s.NetworkInterfaces {
		method := string(i.AllocationMethod)
		if i.DHCPReserved {
			method = "reserved in Kea"
		}
		o.part("interface "+i.Name, join(string(i.MACAddress), strings.Join(i.IPv4Addresses, ", "), strings.Join(i.IPv6Addresses, ", "), method))
	}
}

func (o *Object) readAllocation(a *v1alpha2.IPAllocation) {
	s := a.Status
	o.ObservedGeneration, o.Phase, o.Conditions, o.Detail = s.ObservedGeneration, string(s.Phase), s.Conditions, s.Address
	o.use(kindNetwork, a.Spec.NetworkNamespaceName)
	if o.owner == (Ref{}) && a.Spec.NetworkConfigurationName != "" {
		o.owner = Ref{kindConfiguration, a.Namespace, a.Spec.NetworkConfigurationName}
	}
}

func (o *Object) readMachine(m *v1alpha1.Machine) {
	s := m.Status
	o.ObservedGeneration, o.Phase, o.Conditions = s.ObservedGeneration, string(s.Phase), s.Conditions
	o.Detail = join(strings.Join(s.IPAddresses, ", "), s.ProviderID, s.NodeName)
	for _, n := range m.Spec.Networks {
		o.use(kindConfiguration, n.NetworkName)
	}
	if len(m.Spec.Networks) == 0 {
		o.use(kindConfiguration, m.Name)
	}
	provider := s.Provider
	if provider == "" && m.Spec.ProviderRef != nil {
		provider = m.Spec.ProviderRef.Name
	}
	o.use(kindProvider, provider)
	// The Secret with a machine configuration is deleted when the node has it.
	if m.Spec.CloudInit != nil && m.Spec.CloudInit.SecretRef != nil && m.MachineConfigSecret() == "" {
		o.use("Secret", m.Spec.CloudInit.SecretRef.Name)
	}
	if name := m.Labels[v1alpha1.LabelClusterName]; name != "" {
		o.owner = Ref{kindCluster, m.Namespace, name}
	}
	if s.Task != nil {
		o.part("task", s.Task.Action+" "+s.Task.ID)
	}
}

func (o *Object) readProvider(p *v1alpha1.MachineProvider) {
	s := p.Status
	o.ObservedGeneration, o.Phase, o.Conditions = s.ObservedGeneration, string(s.Phase), s.Conditions
	o.Detail = join(string(p.Spec.Type), s.Version)
	for _, n := range s.Nodes {
		state := "accepts machines"
		if !n.Ready {
			state = "accepts no machines"
		}
		o.part("host "+n.Name, state)
	}
}

func (o *Object) readCluster(k *v1alpha1.KubernetesCluster) {
	s := k.Status
	o.ObservedGeneration, o.Phase, o.Conditions = s.ObservedGeneration, string(s.Phase), s.Conditions
	o.Detail = join(s.Version, s.Endpoint)
	o.use(kindNetwork, k.Spec.NetworkNamespaceName)
	o.anyNetwork = k.Spec.NetworkNamespaceName == ""
	if s.Secrets != nil {
		o.use("Secret", s.Secrets.Kubeconfig, s.Secrets.Talosconfig)
	}
}

func (o *Object) readBackup(b *v1alpha1.EtcdBackup) {
	s := b.Status
	o.ObservedGeneration, o.Phase, o.Conditions = s.ObservedGeneration, string(s.Phase), s.Conditions
	o.use(kindCluster, b.Spec.ClusterName)
	if b.Spec.StorageLocation.SecretRef != nil {
		o.use("Secret", b.Spec.StorageLocation.SecretRef.Name)
	}
	if s.BackupCount > 0 {
		o.part("snapshots", fmt.Sprintf("%d kept, the newest has %s", s.BackupCount, s.BackupSize))
	}
}

func (o *Object) readTemplate(t *v1alpha1.ClusterTemplate) {
	s := &t.Status
	o.ObservedGeneration, o.Conditions = s.ObservedGeneration, s.Conditions
	for _, u := range s.Updating {
		o.uses = append(o.uses, Ref{kindCluster, u.Namespace, u.Name})
	}
	o.Detail = fmt.Sprintf("%d of %d clusters current", s.CurrentClusters, s.Clusters)
}

// readForeign reads an object of another project. The stack labels what it creates for a Machine.
func (o *Object) readForeign(u *unstructured.Unstructured) {
	o.Phase, _, _ = unstructured.NestedString(u.Object, "status", "phase")
	if status, ok, _ := unstructured.NestedString(u.Object, "status", "printableStatus"); ok {
		o.Phase = status
	}
	labels := u.GetLabels()
	if name := labels[v1alpha1.LabelMachine]; name != "" && o.owner.Kind != kindMachine && o.owner.Kind != "DataVolume" {
		o.owner = Ref{kindMachine, u.GetNamespace(), name}
	}
	switch o.Kind {
	case "PersistentVolumeClaim":
		size, _, _ := unstructured.NestedString(u.Object, "status", "capacity", "storage")
		class, _, _ := unstructured.NestedString(u.Object, "spec", "storageClassName")
		o.Detail = join(size, class)
	case "VirtualMachineInstance":
		o.Detail, _, _ = unstructured.NestedString(u.Object, "status", "nodeName")
	case "Lease":
		o.Detail = u.GetAnnotations()["vitistack.io/address"]
	}
	o.holder = labels[v1alpha1.LabelHolder]
}

// join joins texts that are not empty.
func join(texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(s string) bool { return s == "" }), ", ")
}

func vlan(id int32) string {
	if id == 0 {
		return ""
	}
	return fmt.Sprintf("VLAN %d", id)
}
