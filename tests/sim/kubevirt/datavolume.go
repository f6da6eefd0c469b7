package kubevirt

import (
	"context"
	"fmt"
	"net/url"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// opImport is the operation of an import. If the source has a host, the operation is
// "dv/import/<host>".
const opImport = "dv/import"

const (
	dataVolumeKind = "DataVolume"

	annotationImmediate = "cdi.kubevirt.io/storage.bind.immediate.requested"
	annotationPodPhase  = "cdi.kubevirt.io/storage.pod.phase"
	annotationEndpoint  = "cdi.kubevirt.io/storage.import.endpoint"
	annotationPopulator = "cdi.kubevirt.io/storage.usePopulator"
	annotationAdoption  = "cdi.kubevirt.io/allowClaimAdoption"

	reasonImportError = "Error"
	reasonImagePull   = "ImagePullFailed"
)

// importRetry is the delay before the first retry of an import. It grows with the square of the
// failures.
const importRetry = time.Second

// dataVolume reconciles a DataVolume.
func (s *Simulator) dataVolume(ctx context.Context, namespace, name string) (time.Duration, error) {
	dv := s.api.imports.get(namespace, name)
	switch {
	case dv == nil || dv.DeletionTimestamp != nil:
		return 0, nil
	case s.abandoned(dv):
		_, err := s.api.imports.delete(ctx, dv)
		return 0, err
	case dv.Status.Phase == cdiv1.Succeeded:
		return 0, nil
	}
	claim := s.api.claims.get(namespace, name)
	if claim == nil && dv.Spec.SourceRef != nil {
		return 0, nil // CDI creates no claim before it finds the DataSource (pkg/controller/datavolume/controller-base.go, populateSourceIfSourceRef), and there is none here
	}
	if claim == nil {
		made, err := s.createClaim(ctx, dv)
		if err != nil {
			return 0, err
		}
		claim = made
	}
	if claim.DeletionTimestamp != nil {
		return 0, nil
	}
	progress, again, err := s.populate(ctx, dv, claim)
	if err != nil {
		return 0, err
	}
	if current := s.api.claims.get(namespace, name); current != nil {
		claim = current
	}
	after := dv.DeepCopy()
	after.Status = importStatus(dv, claim, progress, metav1.Now())
	_, err = s.api.imports.patch(ctx, dv, after, "status")
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	return again, err
}

// progress is how far a DataVolume is filled.
type progress struct {
	phase cdiv1.DataVolumePhase
	// running, reason and message describe the pod that fills it.
	running         corev1.ConditionStatus
	reason, message string
	failed          bool
}

func completed() progress {
	return progress{phase: cdiv1.Succeeded, running: corev1.ConditionFalse, reason: "Completed", message: "Import Complete"}
}

func transferring(phase cdiv1.DataVolumePhase) progress {
	return progress{phase: phase, running: corev1.ConditionTrue, reason: "Pod is running"}
}

// idle returns a progress without a pod.
func idle(phase cdiv1.DataVolumePhase) progress {
	return progress{phase: phase, running: corev1.ConditionFalse}
}

// populate fills and binds the claim of a DataVolume, and returns its progress.
func (s *Simulator) populate(ctx context.Context, dv *cdiv1.DataVolume, claim *corev1.PersistentVolumeClaim) (progress, time.Duration, error) {
	if !ownedBy(claim, dv) {
		if dv.Annotations[annotationAdoption] == "true" && claim.Status.Phase == corev1.ClaimBound {
			return completed(), 0, nil
		}
		if dv.Annotations[annotationAdoption] != "true" {
			s.events.warn(ctx, "datavolume-import-controller", importReference(dv), "ErrResourceExists",
				fmt.Sprintf("Resource %q already exists and is not managed by DataVolume", claim.Name))
		}
		return idle(cdiv1.Pending), 0, nil
	}
	if claim.Status.Phase == corev1.ClaimBound {
		return completed(), 0, nil
	}
	class := s.classOf(claim)
	switch {
	case class == nil || class.Provisioner != provisioner:
		return idle(cdiv1.Pending), 0, nil
	case s.awaitsConsumer(claim, class):
		return idle(cdiv1.PendingPopulation), 0, nil
	case dv.Spec.Source == nil:
		return idle(cdiv1.Pending), 0, nil // it has a sourceRef, or another populator fills it
	case dv.Spec.Source.Upload != nil:
		return transferring(cdiv1.UploadReady), 0, nil
	}
	return s.importInto(ctx, dv, claim)
}

func (s *Simulator) importInto(ctx context.Context, dv *cdiv1.DataVolume, claim *corev1.PersistentVolumeClaim) (progress, time.Duration, error) {
	kind, endpoint := sourceOf(dv.Spec.Source)
	now := transferring(cdiv1.ImportInProgress)
	if kind == "clone" {
		now.phase = cdiv1.CloneInProgress
	}
	operation := opImport
	if u, err := url.Parse(endpoint); err == nil && u.Hostname() != "" {
		operation += "/" + u.Hostname()
	}
	duration := s.options.Times.Importing
	if dv.Status.RestartCount > 0 {
		duration += backoff(int(dv.Status.RestartCount), importRetry)
	}
	step := step{dv.UID, operation}
	left, fault := s.pace.wait(step, duration)
	if left > 0 {
		if running := importCondition(dv, cdiv1.DataVolumeRunning); dv.Status.RestartCount > 0 && running != nil {
			now.running, now.reason, now.message = running.Status, running.Reason, running.Message
		}
		return now, left, nil
	}
	s.pace.done(step)
	text, failed := fault.Before()
	if !failed {
		text, failed = fault.Lost()
	}
	if failed {
		message := fmt.Sprintf("Unable to connect to %s data source: HTTP request errored: Get %q: %s", kind, endpoint, text)
		s.events.warn(ctx, "datavolume-import-controller", importReference(dv), reasonImportError, message)
		now.running, now.reason, now.message, now.failed = corev1.ConditionFalse, reasonImportError, message, true
		return now, 0, nil
	}
	left, err := s.bindClaim(ctx, claim, s.classOf(claim))
	if err != nil || left > 0 {
		return now, left, err
	}
	return completed(), 0, nil
}

// importStatus returns the status of a DataVolume with a progress.
func importStatus(dv *cdiv1.DataVolume, claim *corev1.PersistentVolumeClaim, p progress, now metav1.Time) cdiv1.DataVolumeStatus {
	status := *dv.Status.DeepCopy()
	status.Phase, status.ClaimName = p.phase, claim.Name
	status.Progress = "N/A"
	ready := cdiv1.DataVolumeCondition{Type: cdiv1.DataVolumeReady, Status: corev1.ConditionFalse}
	bound := cdiv1.DataVolumeCondition{
		Type: cdiv1.DataVolumeBound, Status: corev1.ConditionFalse,
		Reason: "Pending", Message: fmt.Sprintf("PVC %s Pending", claim.Name),
	}
	if claim.Status.Phase == corev1.ClaimBound {
		bound.Status, bound.Reason, bound.Message = corev1.ConditionTrue, "Bound", fmt.Sprintf("PVC %s Bound", claim.Name)
	}
	switch {
	case p.phase == cdiv1.Succeeded:
		status.Progress, ready.Status = "100.0%", corev1.ConditionTrue
	case p.running == corev1.ConditionTrue:
		ready.Reason = "TransferRunning"
	}
	if p.failed {
		status.RestartCount++
	}
	for _, c := range []cdiv1.DataVolumeCondition{bound, ready, {
		Type: cdiv1.DataVolumeRunning, Status: p.running, Reason: p.reason, Message: p.message,
	}} {
		status.Conditions = setImportCondition(status.Conditions, c, now)
	}
	return status
}

func setImportCondition(all []cdiv1.DataVolumeCondition, c cdiv1.DataVolumeCondition, now metav1.Time) []cdiv1.DataVolumeCondition {
	c.LastTransitionTime, c.LastHeartbeatTime = now, now
	for i, old := range all {
		if old.Type != c.Type {
			continue
		}
		if old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
		if old.Status != c.Status || old.Reason != c.Reason || old.Message != c.Message {
			all[i] = c
		}
		return all
	}
	return append(all, c)
}

func importCondition(dv *cdiv1.DataVolume, t cdiv1.DataVolumeConditionType) *cdiv1.DataVolumeCondition {
	for i := range dv.Status.Conditions {
		if dv.Status.Conditions[i].Type == t {
			return &dv.Status.Conditions[i]
		}
	}
	return nil
}

// createClaim creates the claim of a DataVolume. The storage profile of its class completes it.
func (s *Simulator) createClaim(ctx context.Context, dv *cdiv1.DataVolume) (*corev1.PersistentVolumeClaim, error) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: dv.Namespace, Name: dv.Name, Labels: map[string]string{},
		Annotations: map[string]string{annotationPopulator: "true"},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(dv, schema.GroupVersionKind{
			Group: cdiv1.SchemeGroupVersion.Group, Version: cdiv1.SchemeGroupVersion.Version, Kind: dataVolumeKind,
		})},
	}}
	for k, v := range dv.Labels {
		claim.Labels[k] = v
	}
	claim.Labels["app"] = "containerized-data-importer"
	for _, k := range []string{annotationImmediate} {
		if v, ok := dv.Annotations[k]; ok {
			claim.Annotations[k] = v
		}
	}
	if endpoint := s.endpoint(dv); endpoint != "" {
		claim.Annotations[annotationEndpoint] = endpoint
	}
	switch {
	case dv.Spec.PVC != nil:
		claim.Spec = *dv.Spec.PVC.DeepCopy()
	case dv.Spec.Storage != nil:
		spec, err := s.claimSpec(ctx, dv.Spec.Storage)
		if err != nil {
			return nil, err
		}
		claim.Spec = spec
	}
	return s.api.claims.create(ctx, claim)
}

// claimSpec completes a storage request with the profile of its class.
func (s *Simulator) claimSpec(ctx context.Context, storage *cdiv1.StorageSpec) (corev1.PersistentVolumeClaimSpec, error) {
	spec := corev1.PersistentVolumeClaimSpec{
		AccessModes: storage.AccessModes, VolumeMode: storage.VolumeMode, VolumeName: storage.VolumeName,
		StorageClassName: storage.StorageClassName, Selector: storage.Selector,
		Resources: *storage.Resources.DeepCopy(),
	}
	if spec.StorageClassName == nil {
		s.api.classes.cache.each("", func(c *storageClass) {
			if c.Annotations["storageclass.kubernetes.io/is-default-class"] == "true" {
				spec.StorageClassName = new(c.Name)
			}
		})
	}
	if len(spec.AccessModes) > 0 && spec.VolumeMode != nil {
		return spec, nil
	}
	if spec.StorageClassName != nil {
		profile, err := s.api.profiles.read(ctx, "", *spec.StorageClassName)
		if err != nil && !apierrors.IsNotFound(err) {
			return spec, fmt.Errorf("read storage profile %s: %w", *spec.StorageClassName, err)
		}
		if err == nil {
			complete(&spec, append(profile.Spec.ClaimPropertySets, profile.Status.ClaimPropertySets...))
		}
	}
	if len(spec.AccessModes) == 0 {
		spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	}
	return spec, nil
}

// complete returns the first set of a profile that fits the request.
func complete(spec *corev1.PersistentVolumeClaimSpec, sets []cdiv1.ClaimPropertySet) {
	for _, set := range sets {
		modeFits := spec.VolumeMode == nil || set.VolumeMode == nil || *spec.VolumeMode == *set.VolumeMode
		accessFits := len(spec.AccessModes) == 0 || (len(set.AccessModes) > 0 && set.AccessModes[0] == spec.AccessModes[0])
		if !modeFits || !accessFits {
			continue
		}
		if spec.VolumeMode == nil {
			spec.VolumeMode = set.VolumeMode
		}
		if len(spec.AccessModes) == 0 {
			spec.AccessModes = set.AccessModes
		}
		return
	}
}

// sourceOf returns the name of a source in the importer's messages, and its location.
func sourceOf(source *cdiv1.DataVolumeSource) (kind, endpoint string) {
	switch {
	case source.HTTP != nil:
		return "http", source.HTTP.URL
	case source.S3 != nil:
		return "s3", source.S3.URL
	case source.GCS != nil:
		return "gcs", source.GCS.URL
	case source.Registry != nil && source.Registry.URL != nil:
		return "registry", *source.Registry.URL
	case source.PVC != nil:
		return "clone", ""
	}
	return "none", ""
}

// endpoint returns the location of a DataVolume's content, also through a clone.
func (s *Simulator) endpoint(dv *cdiv1.DataVolume) string {
	if dv.Spec.Source == nil {
		return ""
	}
	if from := dv.Spec.Source.PVC; from != nil {
		if claim := s.api.claims.get(from.Namespace, from.Name); claim != nil {
			return imageOf(claim)
		}
		return ""
	}
	_, endpoint := sourceOf(dv.Spec.Source)
	return endpoint
}

// imageOf returns the location that a claim's content was imported from, or an empty string.
func imageOf(claim *corev1.PersistentVolumeClaim) string {
	return claim.Annotations[annotationEndpoint]
}

// populatesForConsumer reports whether a claim is filled because an instance waits for it.
func populatesForConsumer(claim *corev1.PersistentVolumeClaim) bool {
	return claim.Annotations[annotationSelectedNode] != ""
}

func ownedBy(claim *corev1.PersistentVolumeClaim, dv *cdiv1.DataVolume) bool {
	return metav1.IsControlledBy(claim, dv)
}

// abandoned reports whether the machine of a DataVolume is deleted.
func (s *Simulator) abandoned(dv *cdiv1.DataVolume) bool {
	owner := metav1.GetControllerOf(dv)
	if owner == nil || owner.Kind != virtv1.VirtualMachineGroupVersionKind.Kind {
		return false
	}
	vm := s.api.vms.get(dv.Namespace, owner.Name)
	return vm == nil || vm.UID != owner.UID
}

func importReference(dv *cdiv1.DataVolume) corev1.ObjectReference {
	return corev1.ObjectReference{
		APIVersion: cdiv1.SchemeGroupVersion.String(), Kind: dataVolumeKind,
		Namespace: dv.Namespace, Name: dv.Name, UID: dv.UID,
	}
}
