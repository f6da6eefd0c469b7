package admission

import (
	"fmt"
	"net/url"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// minVolume is the minimum size of a disk.
const minVolume = 1 << 20

// ValidateDataVolume returns why CDI rejects a DataVolume. old is nil for a creation. claim is then
// the claim of the same name, or nil.
func ValidateDataVolume(dv, old *cdiv1.DataVolume, claim *corev1.PersistentVolumeClaim) Causes {
	var c Causes
	if old != nil && !equality.Semantic.DeepEqual(dv.Spec, old.Spec) {
		c.add(metav1.CauseTypeFieldValueDuplicate, field.NewPath("DataVolume", "Spec"), "Cannot update DataVolume Spec")
		return c
	}
	if tooLong(&c, dv.Name) {
		return c
	}
	if old == nil && claim != nil && !mayAdopt(dv, claim) {
		c.add(metav1.CauseTypeFieldValueDuplicate, field.NewPath("DataVolume", "Name"),
			"Destination PVC %s/%s already exists", claim.Namespace, claim.Name)
		return c
	}
	return dataVolumeSpec(field.NewPath("spec"), &dv.Spec)
}

func tooLong(c *Causes, name string) bool {
	if len(name) <= validation.DNS1123SubdomainMaxLength {
		return false
	}
	c.invalid(nil, "Name cannot be longer than %d characters", validation.DNS1123SubdomainMaxLength)
	return true
}

// mayAdopt reports whether a claim may exist before its DataVolume.
func mayAdopt(dv *cdiv1.DataVolume, claim *corev1.PersistentVolumeClaim) bool {
	owner := metav1.GetControllerOf(claim)
	return claim.Annotations["cdi.kubevirt.io/storage.populatedFor"] == dv.Name ||
		dv.Annotations["cdi.kubevirt.io/allowClaimAdoption"] == "true" ||
		(owner != nil && owner.Kind == "DataVolume")
}

// dataVolumeSpec returns the first error, as CDI does.
func dataVolumeSpec(at *field.Path, spec *cdiv1.DataVolumeSpec) Causes {
	var c Causes
	external := populatedExternally(spec)
	sourced := spec.Source != nil || spec.SourceRef != nil
	switch {
	case spec.PVC == nil && spec.Storage == nil:
		c.invalid(at.Child("PVC"), "Missing Data volume PVC")
	case spec.PVC != nil && spec.Storage != nil:
		c.invalid(at.Child("PVC", "Storage"), "Duplicate storage definition, both target storage and target pvc defined")
	case storageSize(&c, at, spec) || storageClass(&c, spec) || accessModes(&c, at, spec):
	case external && sourced:
		c.invalid(at.Child("source"), "External population is incompatible with Source and SourceRef")
	case external:
	case (spec.Source == nil) == (spec.SourceRef == nil):
		c.invalid(at.Child("source"), "Data volume should have either Source or SourceRef, or be externally populated")
	case spec.SourceRef != nil:
		sourceReference(&c, at.Child("sourceRef"), spec.SourceRef)
	default:
		c = append(c, dataVolumeSource(at, spec)...)
	}
	return c
}

func populatedExternally(spec *cdiv1.DataVolumeSpec) bool {
	if spec.PVC != nil {
		return spec.PVC.DataSource != nil || spec.PVC.DataSourceRef != nil
	}
	return spec.Storage != nil && (spec.Storage.DataSource != nil || spec.Storage.DataSourceRef != nil)
}

func storageSize(c *Causes, at *field.Path, spec *cdiv1.DataVolumeSpec) bool {
	name, resources := "PVC", corev1.VolumeResourceRequirements{}
	if spec.PVC != nil {
		resources = spec.PVC.Resources
	} else {
		name, resources = "Storage", spec.Storage.Resources
	}
	here := at.Child(name, "resources", "requests", "size")
	clone := spec.SourceRef != nil || (spec.Source != nil && (spec.Source.PVC != nil || spec.Source.Snapshot != nil))
	size, given := resources.Requests[corev1.ResourceStorage]
	switch {
	case !given && (spec.Storage == nil || !clone):
		c.invalid(here, "%s size is missing", name)
	case given && size.Sign() <= 0:
		c.invalid(here, "%s size can't be equal or less than zero", name)
	case given && size.Value() < minVolume:
		c.invalid(here, "%s size should be at least 1MiB", name)
	}
	return len(*c) > 0
}

func storageClass(c *Causes, spec *cdiv1.DataVolumeSpec) bool {
	class := (*string)(nil)
	if spec.PVC != nil {
		class = spec.PVC.StorageClassName
	} else {
		class = spec.Storage.StorageClassName
	}
	return class != nil && tooLong(c, *class)
}

func accessModes(c *Causes, at *field.Path, spec *cdiv1.DataVolumeSpec) bool {
	at = at.Child("PVC", "accessModes")
	modes := []corev1.PersistentVolumeAccessMode(nil)
	if spec.PVC != nil {
		modes = spec.PVC.AccessModes
		switch {
		case len(modes) == 0:
			c.invalid(at, "Required value: at least 1 access mode is required")
			return true
		case len(modes) > 1:
			c.invalid(at, "PVC multiple accessModes")
			return true
		}
	} else {
		modes = spec.Storage.AccessModes
	}
	known := []corev1.PersistentVolumeAccessMode{
		corev1.ReadOnlyMany, corev1.ReadWriteMany, corev1.ReadWriteOnce, corev1.ReadWriteOncePod,
	}
	for _, m := range modes {
		if !slices.Contains(known, m) {
			c.invalid(at, `Unsupported value: "%s": supported values: "ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"`, modes[0])
			return true
		}
	}
	return false
}

func sourceReference(c *Causes, at *field.Path, ref *cdiv1.DataVolumeSourceRef) {
	switch {
	case ref.Kind == "":
		c.invalid(at.Child("Kind"), "Missing sourceRef kind")
	case ref.Kind != cdiv1.DataVolumeDataSource:
		c.invalid(at.Child("Kind"), "Unsupported sourceRef kind %s, currently only %s is supported", ref.Kind, cdiv1.DataVolumeDataSource)
	case ref.Name == "":
		c.invalid(at.Child("Name"), "Missing sourceRef name")
	}
}

func countSources(s *cdiv1.DataVolumeSource) int {
	n := 0
	v := reflect.ValueOf(s).Elem()
	for i := range v.NumField() {
		if !v.Field(i).IsNil() {
			n++
		}
	}
	return n
}

func dataVolumeSource(at *field.Path, spec *cdiv1.DataVolumeSpec) Causes {
	var c Causes
	s, from := spec.Source, at.Child("source")
	contents := []cdiv1.DataVolumeContentType{"", cdiv1.DataVolumeKubeVirt, cdiv1.DataVolumeArchive}
	switch n := countSources(s); {
	case n == 0:
		c.invalid(from, "Missing Data volume source")
	case n > 1:
		c.invalid(from, "Multiple Data volume sources")
	case !slices.Contains(contents, spec.ContentType):
		c.invalid(at.Child("contentType"), "ContentType not one of: %s, %s", cdiv1.DataVolumeKubeVirt, cdiv1.DataVolumeArchive)
	case s.HTTP != nil:
		sourceURL(&c, from, "HTTP", s.HTTP.URL)
	case s.S3 != nil:
		sourceURL(&c, from, "S3", s.S3.URL)
	case s.GCS != nil:
		sourceURL(&c, from, "GCS", s.GCS.URL)
	case s.Blank != nil && spec.ContentType == cdiv1.DataVolumeArchive:
		c.invalid(at.Child("contentType"), "SourceType cannot be blank and the contentType be archive")
	case s.Registry != nil && spec.ContentType == cdiv1.DataVolumeArchive:
		c.invalid(at.Child("contentType"), "ContentType must be %s when Source is Registry", cdiv1.DataVolumeKubeVirt)
	case s.Registry != nil:
		registry(&c, from.Child("Registry"), s.Registry)
	case s.PVC != nil && (s.PVC.Namespace == "" || s.PVC.Name == ""):
		c.invalid(from.Child("PVC"), "%s source PVC is not valid", from.Child("PVC"))
	}
	return c
}

func sourceURL(c *Causes, from *field.Path, kind, text string) {
	wrong := ""
	u, err := url.ParseRequestURI(text)
	switch {
	case text == "":
		wrong = "source URL is empty"
	case err != nil:
		wrong = fmt.Sprintf("Invalid source URL: %s", text)
	case !slices.Contains([]string{"http", "https", "gs"}, u.Scheme):
		wrong = fmt.Sprintf("Invalid source URL scheme: %s", text)
	default:
		return
	}
	c.invalid(from.Child(kind, "url"), "%s %s", from, wrong)
}

func registry(c *Causes, at *field.Path, r *cdiv1.DataVolumeSourceRegistry) {
	if (r.URL == nil) == (r.ImageStream == nil) {
		c.invalid(at, "Source registry should have either URL or ImageStream")
		return
	}
	if r.URL == nil {
		return
	}
	u, err := url.Parse(*r.URL)
	switch {
	case err != nil:
		c.invalid(at.Child("URL"), "Illegal registry source URL %s", *r.URL)
	case u.Scheme != cdiv1.RegistrySchemeDocker && u.Scheme != cdiv1.RegistrySchemeOci:
		c.invalid(at.Child("URL"), "Illegal registry source URL scheme %s", u)
	}
}
