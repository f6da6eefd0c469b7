package admission

import (
	"encoding/base64"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	virtv1 "kubevirt.io/api/core/v1"
)

// maxInline is the maximum size of inline cloud-init data. Larger data belongs into a Secret.
const maxInline = 2048

func volumes(at *field.Path, spec *virtv1.VirtualMachineInstanceSpec) Causes {
	var c Causes
	at = at.Child("volumes")
	first := map[string]int{}
	accounts, dumps, metrics := 0, 0, 0
	for i, v := range spec.Volumes {
		here := at.Index(i)
		if other, taken := first[v.Name]; taken {
			c.invalid(here.Child("name"), "%s and %s must not have the same Name.", here, at.Index(other))
		} else {
			first[v.Name] = i
		}
		if v.DataVolume != nil && v.DataVolume.Name == "" {
			c.required(here.Child("name"), "DataVolume 'name' must be set")
		}
		if sources(v) != 1 {
			c.invalid(here, "%s must have exactly one source type set", here)
		}
		c = append(c, cloudInit(here, v)...)
		c = append(c, volumeFields(here, v)...)
		if v.ServiceAccount != nil {
			accounts++
		}
		if v.MemoryDump != nil {
			dumps++
		}
		if v.DownwardMetrics != nil {
			metrics++
		}
	}
	for _, limited := range []struct {
		count int
		name  string
	}{{accounts, "serviceAccount"}, {metrics, "downwardMetric"}, {dumps, "memory dump"}} {
		if limited.count > 1 {
			c.invalid(at, "%s must have max one %s volume set", at, limited.name)
		}
	}
	return c
}

// sources returns the number of sources of a volume.
func sources(v virtv1.Volume) int {
	n := 0
	source := reflect.ValueOf(v.VolumeSource)
	for i := range source.NumField() {
		if f := source.Field(i); f.Kind() == reflect.Pointer && !f.IsNil() {
			n++
		}
	}
	return n
}

func volumeFields(here *field.Path, v virtv1.Volume) Causes {
	var c Causes
	const needed = "%s is a required field"
	if v.DownwardMetrics != nil {
		c.invalid(here, "downwardMetrics disks are not allowed: DownwardMetrics feature gate is not enabled.")
	}
	if v.HostDisk != nil {
		c.invalid(here, "HostDisk feature gate is not enabled")
	}
	if v.ConfigMap != nil && v.ConfigMap.Name == "" {
		c.invalid(here.Child("configMap", "name"), needed, here.Child("configMap", "name"))
	}
	if v.Secret != nil && v.Secret.SecretName == "" {
		c.invalid(here.Child("secret", "secretName"), needed, here.Child("secret", "secretName"))
	}
	if v.ServiceAccount != nil && v.ServiceAccount.ServiceAccountName == "" {
		c.invalid(here.Child("serviceAccount", "serviceAccountName"), needed, here.Child("serviceAccount", "serviceAccountName"))
	}
	return c
}

// part is user data or network data of cloud-init.
type part struct {
	name           string // userdata or networkdata
	sources        string // in the message about several sources
	field          string
	reference      string
	inline, base64 string
	secret         *corev1.LocalObjectReference
}

func cloudInit(here *field.Path, v virtv1.Volume) Causes {
	user := part{name: "userdata", sources: "userdatasource", field: "userDataBase64", reference: "UserDataSecretRef"}
	network := part{name: "networkdata", sources: "networkdata source", field: "networkDataBase64", reference: "NetworkDataSecretRef"}
	var kind string
	switch {
	case v.CloudInitNoCloud != nil:
		s := v.CloudInitNoCloud
		kind = "cloudInitNoCloud"
		user.inline, user.base64, user.secret = s.UserData, s.UserDataBase64, s.UserDataSecretRef
		network.inline, network.base64, network.secret = s.NetworkData, s.NetworkDataBase64, s.NetworkDataSecretRef
	case v.CloudInitConfigDrive != nil:
		s := v.CloudInitConfigDrive
		kind = "cloudInitConfigDrive"
		user.inline, user.base64, user.secret = s.UserData, s.UserDataBase64, s.UserDataSecretRef
		network.inline, network.base64, network.secret = s.NetworkData, s.NetworkDataBase64, s.NetworkDataSecretRef
	default:
		return nil
	}
	at := here.Child(kind)
	c, users := user.check(at, kind)
	more, networks := network.check(at, kind)
	c = append(c, more...)
	if users == 0 && networks == 0 {
		c.invalid(at, "%s must have at least one userdatasource or one networkdatasource set.", at)
	}
	return c
}

func (p part) check(at *field.Path, kind string) (Causes, int) {
	var c Causes
	given, size := 0, 0
	if p.secret != nil && p.secret.Name != "" {
		given++
	}
	if p.base64 != "" {
		given++
		data, err := base64.StdEncoding.DecodeString(p.base64)
		if err != nil {
			c.invalid(at.Child(p.field), "%s.%s.%s is not a valid base64 value.", at.Child(p.field), kind, p.field)
		}
		size = len(data)
	}
	if p.inline != "" {
		given++
		size = len(p.inline)
	}
	if given > 1 {
		c.invalid(at, "%s must have only one %s set.", at, p.sources)
	}
	if size > maxInline {
		c.invalid(at, "%s %s exceeds %d byte limit. Should use %s for larger data.", at, p.name, maxInline, p.reference)
	}
	return c, given
}

// volumesUsed checks that each volume of a new instance has a disk or file system.
func volumesUsed(at *field.Path, spec *virtv1.VirtualMachineInstanceSpec) Causes {
	var c Causes
	used := map[string]bool{}
	for _, d := range spec.Domain.Devices.Disks {
		used[d.Name] = true
	}
	for _, f := range spec.Domain.Devices.Filesystems {
		used[f.Name] = true
	}
	for i, v := range spec.Volumes {
		if v.MemoryDump == nil && !used[v.Name] {
			here := at.Child("domain", "volumes").Index(i).Child("name")
			c.invalid(here, notFound, here, v.Name)
		}
	}
	return c
}

func containerDisks(at *field.Path, spec *virtv1.VirtualMachineInstanceSpec) Causes {
	var c Causes
	for i, v := range spec.Volumes {
		if v.ContainerDisk != nil && v.ContainerDisk.Path != "" {
			c = append(c, absolutePath(at.Child("volumes").Index(i).Child("containerDisk"), v.ContainerDisk.Path)...)
		}
	}
	return c
}

func dataVolumeTemplates(at *field.Path, spec *virtv1.VirtualMachineSpec) Causes {
	var c Causes
	for i, t := range spec.DataVolumeTemplates {
		here := at.Child("dataVolumeTemplate").Index(i)
		if wrong := dataVolumeTemplate(here, t); len(wrong) > 0 {
			c = append(c, wrong...)
			continue
		}
		if !usesVolume(spec.Template.Spec.Volumes, t.Name) {
			c.required(here, "DataVolumeTemplate entry %s must be referenced in the VMI template's 'volumes' list", here)
		}
	}
	return c
}

func usesVolume(volumes []virtv1.Volume, name string) bool {
	for _, v := range volumes {
		if (v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == name) ||
			(v.DataVolume != nil && v.DataVolume.Name == name) {
			return true
		}
	}
	return false
}

func dataVolumeTemplate(here *field.Path, t virtv1.DataVolumeTemplateSpec) Causes {
	var c Causes
	spec := &t.Spec
	external := populatedExternally(spec)
	switch {
	case t.Name == "":
		c.required(here.Child("name"), "'name' field must not be empty for DataVolumeTemplate entry %s.", here.Child("name"))
	case spec.PVC == nil && spec.Storage == nil:
		c.invalid(here.Child("PVC", "Storage"), "Missing Data volume PVC or Storage")
	case spec.PVC != nil && spec.Storage != nil:
		c.invalid(here.Child("PVC", "Storage"), "Duplicate storage definition, both target storage and target pvc defined")
	case external && (spec.Source != nil || spec.SourceRef != nil):
		c.invalid(here.Child("source"), "External population is incompatible with Source and SourceRef")
	case !external && spec.Source == nil && spec.SourceRef == nil:
		c.invalid(here.Child("source", "sourceRef"), "Data volume should have either Source, SourceRef, or be externally populated")
	case spec.Source != nil && countSources(spec.Source) == 0:
		c.invalid(here.Child("source"), "Missing dataVolume valid source")
	case spec.Source != nil && countSources(spec.Source) > 1:
		c.invalid(here.Child("source"), "Multiple dataVolume sources")
	}
	return c
}

// templateNamespaces checks that new templates have the machine's namespace.
func templateNamespaces(vm, old *virtv1.VirtualMachine, r Request) Causes {
	var c Causes
	if old != nil && equality.Semantic.DeepEqual(vm.Spec.DataVolumeTemplates, old.Spec.DataVolumeTemplates) {
		return nil
	}
	for i, t := range vm.Spec.DataVolumeTemplates {
		if t.Namespace != "" && t.Namespace != r.Namespace {
			c.add(metav1.CauseTypeFieldValueInvalid, field.NewPath("spec", "dataVolumeTemplates").Index(i),
				"Embedded DataVolume namespace %s differs from VM namespace %s", t.Namespace, r.Namespace)
		}
	}
	return c
}

func serviceAccount(at *field.Path, spec *virtv1.VirtualMachineInstanceSpec) Causes {
	var c Causes
	if spec.ServiceAccountName == "" {
		return nil
	}
	if wrong := validation.IsDNS1123Subdomain(spec.ServiceAccountName); len(wrong) > 0 {
		c.invalid(at.Child("serviceAccountName"), "%s is not a valid service account name: %s",
			at.Child("serviceAccountName"), strings.Join(wrong, "; "))
	}
	for _, v := range spec.Volumes {
		if v.ServiceAccount != nil && v.ServiceAccount.ServiceAccountName != spec.ServiceAccountName {
			c.invalid(at.Child("serviceAccountName"), "spec.serviceAccountName %q and serviceAccount volume %q must reference the same service account",
				spec.ServiceAccountName, v.ServiceAccount.ServiceAccountName)
			break
		}
	}
	return c
}
