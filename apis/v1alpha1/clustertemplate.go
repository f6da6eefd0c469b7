package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ClusterTemplate has the part of a KubernetesCluster that the platform team decides for many clusters.
// A cluster names it in spec.templateRef. The stack writes the fields of the template into the spec of
// each of its clusters. A field that anyone else has written into a cluster stays as it is. A change of
// the template reaches existing clusters in the waves of spec.rollout.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=clustertemplates,scope=Cluster,shortName=ct,categories={vitistack,viti}
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.spec.cluster.topology.version`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Clusters",type=integer,JSONPath=`.status.clusters`
// +kubebuilder:printcolumn:name="Current",type=integer,JSONPath=`.status.currentClusters`
// +kubebuilder:printcolumn:name="Updating",type=integer,JSONPath=`.status.updatingClusters`
// +kubebuilder:printcolumn:name="Waiting",type=integer,JSONPath=`.status.waitingClusters`
// +kubebuilder:printcolumn:name="Wave",type=string,JSONPath=`.status.wave`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63 && self.metadata.name.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')",message="metadata.name is written into templateRef of clusters: use at most 63 lower case letters, digits and -, for example standard"
type ClusterTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ClusterTemplateSpec `json:"spec"`
	// +kubebuilder:default={"observedGeneration":-1}
	Status ClusterTemplateStatus `json:"status,omitempty,omitzero"`
}

// ClusterTemplateList is a list of ClusterTemplates.
//
// +kubebuilder:object:root=true
type ClusterTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterTemplate `json:"items"`
}

// ClusterTemplateSpec is what the clusters of a template have in common, and how a change reaches them.
type ClusterTemplateSpec struct {
	// Fields of the spec of each cluster. Everything is optional. A field that a cluster has in its own
	// manifest takes precedence. Lists such as topology.workers are taken as a whole, and addons item by
	// item. Example: {topology: {version: "1.34", controlplane: {replicas: 3}}}.
	Cluster TemplatedCluster `json:"cluster"`
	// How a change of cluster reaches the clusters that exist. A new cluster gets the template at once.
	// Default: one cluster after the other.
	// +optional
	Rollout *TemplateRollout `json:"rollout,omitempty"`
}

// TemplatedCluster is the part of a KubernetesClusterSpec that a ClusterTemplate can have. It leaves out
// what belongs to one cluster: its identity, network and approval, its switches, and what happens once.
type TemplatedCluster struct {
	// Machines of the clusters.
	// +optional
	Topology *TemplatedTopology `json:"topology,omitempty"`
	// How the Kubernetes API of a cluster is reached. A change applies to new clusters only.
	// +optional
	ControlPlaneEndpoint *TemplatedEndpoint `json:"controlPlaneEndpoint,omitempty"`
	// Pod and Service networks. A change applies to new clusters only.
	// +optional
	Networking *ClusterNetworking `json:"networking,omitempty"`
	// Add-ons of the clusters, which come beside those of a cluster with other names. A ConfigMap has to
	// exist in the namespace of each cluster. Removing an add-on deletes nothing in the clusters.
	// Example: [{name: metrics-server, configMap: metrics-server}].
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Addons []ClusterAddon `json:"addons,omitempty"`
	// +optional
	Talos *TemplatedTalos `json:"talos,omitempty"`
}

// TemplatedTopology is the control plane and the worker pools of a ClusterTemplate.
//
// +kubebuilder:validation:XValidation:rule="!has(self.workers) || self.workers.all(p, !has(p.name) || self.workers.exists_one(o, has(o.name) && o.name == p.name))",message="each worker pool needs a name of its own"
// +kubebuilder:validation:XValidation:rule="!has(self.workers) || !self.workers.exists(p, has(p.name) && p.name == 'cp')",message="a worker pool cannot be named cp: its machines would have the names of control plane machines"
// +kubebuilder:validation:XValidation:rule="!has(self.version) || !has(self.controlplane) || !has(self.controlplane.version)",fieldPath=".version",message="topology.version has no effect while controlplane.version is set: write one of them"
type TemplatedTopology struct {
	// Kubernetes version of the clusters. Example: 1.34.
	// +optional
	Version KubernetesVersion `json:"version,omitempty"`
	// Control plane of the clusters. Example: {replicas: 3, template: large}.
	// +optional
	ControlPlane *ControlPlaneTopology `json:"controlplane,omitempty"`
	// Pools of worker nodes, with unique names. A cluster with pools of its own gets none of these.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Workers []WorkerPool `json:"workers,omitempty"`
}

// TemplatedEndpoint says how the workload API of the clusters of a ClusterTemplate is reached. Addresses
// belong to a cluster, so that the mode custom is left to these.
type TemplatedEndpoint struct {
	// vip or node. Example: vip.
	// +kubebuilder:validation:XValidation:rule="self in ['vip', 'node']",message="write vip or node: mode custom needs a host, which each cluster has in its own controlPlaneEndpoint"
	Mode EndpointMode `json:"mode"`
}

// TemplatedTalos has the options of Talos Linux that a ClusterTemplate can have.
type TemplatedTalos struct {
	// Talos version. Example: 1.13.9.
	// +optional
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="self.matches('^v?1[.][0-9]{1,3}[.][0-9]{1,2}$')",message="write a full Talos version such as 1.13.9"
	Version string `json:"version,omitempty"`
	// Schematic ID of the Talos Image Factory, which selects the system extensions.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9a-f]{64}$')",message="write the 64 hex digits that the image factory gave for the schematic"
	Schematic string `json:"schematic,omitempty"`
	// Disk that Talos is installed to. Example: /dev/sda.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	InstallDisk string `json:"installDisk,omitempty"`
	// Patches of the machine configurations. The ConfigMaps have to exist in the namespace of each cluster.
	// +optional
	Patches *ConfigPatches `json:"patches,omitempty"`
	// How a changed configuration that needs a reboot is applied: NoReboot, Staged or Reboot.
	// Example: Reboot.
	// +optional
	ConfigChanges ConfigChanges `json:"configChanges,omitempty"`
}

// TemplateRollout is how a change of a ClusterTemplate reaches its clusters. A cluster is done when it is
// Ready with its new spec. A cluster that is Stalled stops the rollout.
//
// +kubebuilder:validation:XValidation:rule="!has(self.waves) || self.waves.all(w, !has(w.name) || self.waves.exists_one(o, has(o.name) && o.name == w.name))",message="each wave needs a name of its own"
type TemplateRollout struct {
	// Starts no further cluster while true. Clusters that are being updated finish. Default: false.
	// +optional
	Paused bool `json:"paused,omitempty"`
	// Number of clusters that are updated at the same time. Default: 1. Example: 5.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	MaxConcurrent int32 `json:"maxConcurrent,omitempty"`
	// Waves of clusters, one after the other. A cluster belongs to the first wave that selects it, and
	// clusters that no wave selects come last. Default: none.
	// Example: [{name: test, selector: {matchLabels: {environment: test}}, pauseAfter: 24h}].
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Waves []TemplateWave `json:"waves,omitempty"`
}

// TemplateWave is a group of clusters that a rollout updates together.
type TemplateWave struct {
	// Name of the wave in the status. Example: test.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')",message="write lower case letters, digits and -, for example test"
	Name string `json:"name"`
	// Labels of the KubernetesClusters of the wave. Example: {matchLabels: {environment: test}}.
	Selector WaveSelector `json:"selector"`
	// Number of clusters of the wave that are updated at the same time. Default: rollout.maxConcurrent.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	MaxConcurrent int32 `json:"maxConcurrent,omitempty"`
	// Time between the end of the wave and the start of the next one. Default: none. Example: 24h.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+(h|m|s))+$') && duration(self) > duration('0s')",message="write a time such as 30m or 24h"
	PauseAfter *metav1.Duration `json:"pauseAfter,omitempty"`
}

// WaveSelector selects clusters by their labels.
type WaveSelector struct {
	// Labels that a cluster needs, all of them. Example: {environment: test}.
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=16
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.size() <= 317 && self[k].size() <= 63)",message="a label has at most 63 characters in its value, and 317 in its key"
	MatchLabels map[string]string `json:"matchLabels"`
}

// ClusterTemplateStatus is how far the clusters of a template are.
type ClusterTemplateStatus struct {
	// metadata.generation from which this status was computed.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Hash of what spec.cluster gives to clusters that exist. Clusters with another one wait for their turn.
	// +optional
	Revision string `json:"revision,omitempty"`
	// Number of clusters that name the template.
	// +optional
	Clusters int32 `json:"clusters"`
	// Number of clusters that have the revision.
	// +optional
	CurrentClusters int32 `json:"currentClusters"`
	// Number of clusters that are being updated to the revision.
	// +optional
	UpdatingClusters int32 `json:"updatingClusters"`
	// Number of clusters that wait for their turn.
	// +optional
	WaitingClusters int32 `json:"waitingClusters"`
	// Wave that is in progress, or whose pauseAfter passes. It is empty for clusters that no wave selects.
	// +optional
	Wave string `json:"wave,omitempty"`
	// When the last cluster of that wave was done. Absent while the wave is in progress.
	// +optional
	WaveFinishedTime *metav1.Time `json:"waveFinishedTime,omitempty"`
	// Clusters that are being updated, recorded before their spec is written.
	// +optional
	// +listType=atomic
	Updating []TemplateUpdate `json:"updating,omitempty"`
	// Clusters that have fields of the template in their own manifest, at most 20.
	// +optional
	// +listType=atomic
	Overrides []TemplateOverride `json:"overrides,omitempty"`
	// When the next reconcile is due if no event arrives earlier.
	// +optional
	NextCheckTime *metav1.Time `json:"nextCheckTime,omitempty"`
	// Conditions of the template, by type. Ready says whether all clusters have the revision.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// TemplateUpdate is a cluster that is being updated.
type TemplateUpdate struct {
	// Namespace of the KubernetesCluster.
	Namespace string `json:"namespace"`
	// Name of the KubernetesCluster.
	Name string `json:"name"`
	// UID of the KubernetesCluster.
	UID types.UID `json:"uid"`
	// Revision that the cluster gets.
	Revision string `json:"revision"`
	// Why the API server refuses the fields of the template for the cluster. Absent if it accepts them.
	// +optional
	Message string `json:"message,omitempty"`
}

// TemplateOverride has the fields of a template that a cluster has in its own manifest.
type TemplateOverride struct {
	// Namespace of the KubernetesCluster.
	Namespace string `json:"namespace"`
	// Name of the KubernetesCluster.
	Name string `json:"name"`
	// Paths in the spec of the cluster, at most 20. Example: [topology.version].
	// +listType=atomic
	Fields []string `json:"fields"`
}

// ClusterTemplateReference names a ClusterTemplate.
type ClusterTemplateReference struct {
	// Name of the ClusterTemplate (kubectl get clustertemplates). Example: standard.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
}
