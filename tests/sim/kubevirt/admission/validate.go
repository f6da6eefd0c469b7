package admission

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	virtv1 "kubevirt.io/api/core/v1"
)

// maxCauses is the number of causes in an answer.
const maxCauses = 10

// Causes are the reasons to reject an object. An empty list accepts it.
type Causes []metav1.StatusCause

// Message joins the causes as virt-api does.
func (c Causes) Message() string {
	var messages []string
	for _, cause := range c.Named() {
		messages = append(messages, cause.Message)
	}
	text := strings.Join(messages, ", ")
	if more := len(c) - maxCauses; more > 0 {
		text = fmt.Sprintf("%s, and %d more validation errors", text, more)
	}
	return text
}

// Named returns the causes that an answer lists individually.
func (c Causes) Named() Causes { return c[:min(len(c), maxCauses)] }

func (c *Causes) add(t metav1.CauseType, at *field.Path, format string, args ...any) {
	cause := metav1.StatusCause{Type: t, Message: fmt.Sprintf(format, args...)}
	if at != nil {
		cause.Field = at.String()
	}
	*c = append(*c, cause)
}

func (c *Causes) invalid(at *field.Path, format string, args ...any) {
	c.add(metav1.CauseTypeFieldValueInvalid, at, format, args...)
}

func (c *Causes) unsupported(at *field.Path, format string, args ...any) {
	c.add(metav1.CauseTypeFieldValueNotSupported, at, format, args...)
}

func (c *Causes) required(at *field.Path, format string, args ...any) {
	c.add(metav1.CauseTypeFieldValueRequired, at, format, args...)
}

// reservedLabels are reserved for KubeVirt's own components.
var reservedLabels = []string{
	virtv1.CreatedByLabel, virtv1.MigrationJobLabel, virtv1.NodeNameLabel,
	virtv1.MigrationTargetNodeNameLabel, virtv1.NodeSchedulable, virtv1.InstallStrategyLabel,
}

var runStrategies = []virtv1.VirtualMachineRunStrategy{
	virtv1.RunStrategyHalted, virtv1.RunStrategyManual, virtv1.RunStrategyAlways,
	virtv1.RunStrategyRerunOnFailure, virtv1.RunStrategyOnce,
}

// Request describes a write in addition to its objects.
type Request struct {
	// Created is true for a creation, and false for an update.
	Created bool
	// Namespace is the namespace of the request.
	Namespace string
	// Internal is true for a write by a component of KubeVirt.
	Internal bool
}

// ValidateMachine returns why a machine is rejected, and warnings for the client. old is nil for a
// creation.
func ValidateMachine(vm, old *virtv1.VirtualMachine, r Request) (Causes, []string) {
	if vm.DeletionTimestamp != nil {
		return nil, nil
	}
	at := field.NewPath("spec")
	if vm.Spec.Template == nil {
		var c Causes
		c.required(at.Child("template"), "missing virtual machine template.")
		return c, nil
	}
	complete := vm.DeepCopy()
	defaultInstanceSpec(&complete.Spec.Template.Spec)
	spec := &complete.Spec
	if r.Created {
		if c := discontinuedBindings(at, &spec.Template.Spec); len(c) > 0 {
			return c, nil
		}
	}
	var c Causes
	template := at.Child("template")
	c = append(c, metadata(template.Child("metadata"), &spec.Template.ObjectMeta, r.Internal)...)
	c = append(c, instanceSpec(template.Child("spec"), &spec.Template.Spec)...)
	c = append(c, dataVolumeTemplates(at, spec)...)
	c = append(c, runStrategy(at, spec)...)
	c = append(c, liveUpdate(at, spec)...)
	if len(c) == 0 {
		c = templateNamespaces(vm, old, r)
	}
	if len(c) > 0 {
		return c, nil
	}
	var warnings []string
	if vm.Spec.Running != nil {
		warnings = append(warnings, "spec.running is deprecated, please use spec.runStrategy instead.")
	}
	return nil, warnings
}

// ValidateInstance returns why a new instance is rejected.
func ValidateInstance(vmi *virtv1.VirtualMachineInstance, r Request) Causes {
	at := field.NewPath("spec")
	var c Causes
	c = append(c, discontinuedBindings(at, &vmi.Spec)...)
	c = append(c, instanceSpec(at, &vmi.Spec)...)
	c = append(c, volumesUsed(at, &vmi.Spec)...)
	c = append(c, memoryGiven(at, &vmi.Spec)...)
	c = append(c, metadata(field.NewPath("metadata"), &vmi.ObjectMeta, r.Internal)...)
	c = append(c, perArchitecture(at, &vmi.Spec)...)
	return c
}

// ValidateInstanceUpdate returns why a change of an instance is rejected. Only KubeVirt may change the
// spec of an instance.
func ValidateInstanceUpdate(vmi, old *virtv1.VirtualMachineInstance, r Request) Causes {
	var c Causes
	if r.Internal {
		return nil
	}
	if !equality.Semantic.DeepEqual(vmi.Spec, old.Spec) {
		c.unsupported(nil, "update of VMI object is restricted")
		return c
	}
	if !equality.Semantic.DeepEqual(reserved(vmi.Labels), reserved(old.Labels)) {
		c.unsupported(nil, "modification of the following reserved kubevirt.io/ labels on a VMI object is prohibited")
	}
	return c
}

// KeepInstanceStatus undoes a change of an instance's status by a client other than KubeVirt, and
// reports whether it did.
func KeepInstanceStatus(vmi, old *virtv1.VirtualMachineInstance, r Request) bool {
	if r.Internal || equality.Semantic.DeepEqual(vmi.Status, old.Status) {
		return false
	}
	vmi.Status = *old.Status.DeepCopy()
	return true
}

func metadata(at *field.Path, m *metav1.ObjectMeta, internal bool) Causes {
	var c Causes
	if !internal && len(reserved(m.Labels)) > 0 {
		c.unsupported(at.Child("labels"), "creation of the following reserved kubevirt.io/ labels on a VMI object is prohibited")
	}
	if m.Annotations[virtv1.IgnitionAnnotation] != "" {
		c.invalid(at.Child("annotations"), "ExperimentalIgnitionSupport feature gate is not enabled in kubevirt-config, invalid entry %s",
			at.Child("annotations").Child(virtv1.IgnitionAnnotation))
	}
	const sidecars = "hooks.kubevirt.io/hookSidecars"
	if m.Annotations[sidecars] != "" {
		c.invalid(at.Child("annotations"), "sidecar feature gate is not enabled in kubevirt-config, invalid entry %s",
			at.Child("annotations", sidecars))
	}
	return c
}

func reserved(labels map[string]string) map[string]string {
	found := map[string]string{}
	for k, v := range labels {
		if slices.Contains(reservedLabels, k) {
			found[k] = v
		}
	}
	return found
}

func runStrategy(at *field.Path, spec *virtv1.VirtualMachineSpec) Causes {
	var c Causes
	if spec.Running != nil && spec.RunStrategy != nil {
		c.invalid(at.Child("running"),
			"Running and RunStrategy are mutually exclusive. Note that Running is deprecated, please use RunStrategy instead")
	}
	if spec.Running == nil && spec.RunStrategy == nil {
		c.invalid(at.Child("running"), "RunStrategy must be specified")
	}
	if spec.RunStrategy == nil || slices.Contains(runStrategies, *spec.RunStrategy) {
		return c
	}
	if *spec.RunStrategy == virtv1.RunStrategyWaitAsReceiver {
		c.invalid(at.Child("runStrategy"), "Invalid RunStrategy (%s), %s feature gate is not enabled in kubevirt resource",
			*spec.RunStrategy, "DecentralizedLiveMigration")
		return c
	}
	c.invalid(at.Child("runStrategy"), "Invalid RunStrategy (%s)", *spec.RunStrategy)
	return c
}

// liveUpdate checks that the maximum CPU and memory of a running machine leave room to grow.
func liveUpdate(at *field.Path, spec *virtv1.VirtualMachineSpec) Causes {
	var c Causes
	domain := &spec.Template.Spec.Domain
	at = at.Child("template", "spec", "domain")
	if cpu := domain.CPU; cpu != nil && cpu.Sockets != 0 && cpu.MaxSockets != 0 && cpu.Sockets > cpu.MaxSockets {
		c.invalid(at.Child("cpu", "sockets"), "Number of sockets in CPU topology is greater than the maximum sockets allowed")
	}
	if domain.Memory != nil && domain.Memory.MaxGuest != nil {
		if why := MemoryHotplugObstacle(&spec.Template.Spec, domain.Memory.MaxGuest); why != "" {
			c.invalid(at.Child("memory", "guest"), "%s", why)
		}
	}
	return c
}

// instanceSpec checks the spec that a machine's template and an instance share.
func instanceSpec(at *field.Path, spec *virtv1.VirtualMachineInstanceSpec) Causes {
	checks := []func(*field.Path, *virtv1.VirtualMachineInstanceSpec) Causes{
		names, memory, hugepages, emulatedMachine, acpiTables, cpuResources, cpuPinning, numa, cpuTopology,
		startStrategy, networks, bootOrder, inputs, ioThreads, probes, domain, volumes, containerDisks,
		credentials, dns, eviction, gatedDevices, soundAndVideo, panicDevices, serviceAccount,
	}
	var c Causes
	for _, check := range checks {
		c = append(c, check(at, spec)...)
	}
	return c
}
