package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// EtcdBackupPhase is where an EtcdBackup is.
// +kubebuilder:validation:Enum=Pending;Scheduled;Running;Completed;Failed
type EtcdBackupPhase string

// Phases of an EtcdBackup. Pending needs a change that its condition Ready names,
// Scheduled waits for the next time of its schedule, Running takes a snapshot,
// Completed has taken its only snapshot, and Failed retries.
const (
	EtcdBackupPending   EtcdBackupPhase = "Pending"
	EtcdBackupScheduled EtcdBackupPhase = "Scheduled"
	EtcdBackupRunning   EtcdBackupPhase = "Running"
	EtcdBackupCompleted EtcdBackupPhase = "Completed"
	EtcdBackupFailed    EtcdBackupPhase = "Failed"
)

// EtcdBackup takes snapshots of a cluster's etcd and keeps the newest of them.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:selectablefield:JSONPath=`.spec.clusterName`
// +kubebuilder:resource:path=etcdbackups,scope=Namespaced,shortName=eb,categories={vitistack,viti}
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.spec.clusterName`
// +kubebuilder:printcolumn:name="Schedule",type=string,JSONPath=`.spec.schedule`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Last",type=date,JSONPath=`.status.lastBackupTime`
// +kubebuilder:printcolumn:name="Size",type=string,JSONPath=`.status.backupSize`
// +kubebuilder:printcolumn:name="Kept",type=integer,JSONPath=`.status.backupCount`
// +kubebuilder:printcolumn:name="Next",type=string,JSONPath=`.status.nextBackupTime`,priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.phase) || oldSelf.status.phase != 'Completed' || has(self.spec.schedule) || self.spec.storageLocation == oldSelf.spec.storageLocation",message="storageLocation has no effect, because the only snapshot of an EtcdBackup without a schedule is taken: write a schedule, or create another EtcdBackup"
type EtcdBackup struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec EtcdBackupSpec `json:"spec"`
	// +kubebuilder:default={"observedGeneration":-1}
	Status EtcdBackupStatus `json:"status,omitempty,omitzero"`
}

// EtcdBackupList is a list of EtcdBackups.
//
// +kubebuilder:object:root=true
type EtcdBackupList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []EtcdBackup `json:"items"`
}

// EtcdBackupSpec says what is backed up when, and where the snapshots go.
type EtcdBackupSpec struct {
	// Name of a KubernetesCluster in the same namespace.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z]([a-z0-9-]*[a-z0-9])?$')",message="write the name of a KubernetesCluster: lower case letters, digits and - only"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="clusterName cannot be changed: make another EtcdBackup for another cluster"
	ClusterName string `json:"clusterName"`
	// When to take a snapshot, in UTC: five fields as in cron, or @hourly, @daily,
	// @weekly, @monthly or @every 6h. Snapshots are at least a minute apart. Default: once.
	// Example: 0 2 * * *.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self.matches('^(@(hourly|daily|midnight|weekly|monthly|yearly|annually)|@every [0-9hms.]+|([^ @=]+ +){4}[^ @=]+)$')",message="write five fields such as 0 2 * * *, or @daily, or @every 6h; times are UTC"
	Schedule string `json:"schedule,omitempty"`
	// Number of snapshots to keep. Older ones are deleted. Default: 7.
	// +kubebuilder:default=7
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	Retention int32 `json:"retention,omitempty"`
	// Where the snapshots go. Example: {type: local}.
	StorageLocation BackupStorage `json:"storageLocation"`
	// Takes no snapshot while true.
	// +optional
	Suspend bool `json:"suspend,omitempty"`
}

// BackupStorageType is a kind of storage.
type BackupStorageType string

// An object store that speaks S3, or a volume of the function etcd-backup.
const (
	BackupS3    BackupStorageType = "s3"
	BackupLocal BackupStorageType = "local"
)

// BackupStorage is where snapshots go.
//
// +kubebuilder:validation:XValidation:rule="(self.type == 's3') == has(self.bucket)",message="type s3 needs bucket, and only type s3 has it"
// +kubebuilder:validation:XValidation:rule="(self.type == 's3') == has(self.secretRef)",message="type s3 needs secretRef, a Secret with the keys accessKeyID and secretAccessKey, and only type s3 has it"
// +kubebuilder:validation:XValidation:rule="self.type == 's3' || (!has(self.endpoint) && !has(self.region))",message="only type s3 has endpoint and region"
type BackupStorage struct {
	// s3 or local.
	// +kubebuilder:validation:XValidation:rule="self in ['s3', 'local']",message="write s3 for an object store, also Google's and others that speak S3, or local for a volume"
	// +kubebuilder:validation:MaxLength=16
	Type BackupStorageType `json:"type"`
	// URL of the object store, for type s3. Default: AWS S3.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="isURL(self) && url(self).getScheme() in ['http', 'https']",message="write a URL such as https://s3.example.com"
	Endpoint string `json:"endpoint,omitempty"`
	// Region of the bucket, for type s3. Default: us-east-1.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Region string `json:"region,omitempty"`
	// Name of the bucket. It has to exist. Example: etcd-backups.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$')",message="write the name of a bucket: 3 to 63 lower case letters, digits, dots and dashes"
	Bucket string `json:"bucket,omitempty"`
	// Folder in the bucket or on the volume. Snapshots are in
	// <path>/<namespace>/<name of the EtcdBackup>/.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*$')",message="write a relative path such as backups/prod, without .. and without / at its ends"
	Path string `json:"path,omitempty"`
	// Secret in the same namespace with the keys accessKeyID and secretAccessKey,
	// and where needed sessionToken and ca.crt.
	// +optional
	SecretRef *LocalSecretReference `json:"secretRef,omitempty"`
}

// LocalSecretReference names a Secret in the same namespace.
type LocalSecretReference struct {
	// Name of the Secret, in the namespace of the object.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// EtcdBackupStatus is what has been backed up.
type EtcdBackupStatus struct {
	// +optional
	Phase EtcdBackupPhase `json:"phase,omitempty"`
	// metadata.generation from which this status was computed.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// When the newest snapshot was due.
	// +optional
	LastBackupTime *metav1.Time `json:"lastBackupTime,omitempty"`
	// When the next one is due.
	// +optional
	NextBackupTime *metav1.Time `json:"nextBackupTime,omitempty"`
	// Size of the newest snapshot, for example 25.6 MiB.
	// +optional
	BackupSize string `json:"backupSize,omitempty"`
	// Number of snapshots that exist.
	// +optional
	BackupCount int32 `json:"backupCount,omitempty"`
	// The newest snapshots, newest first, at most 20.
	// +optional
	// +listType=map
	// +listMapKey=name
	Backups []BackupFile `json:"backups,omitempty"`
	// When the next reconcile is due.
	// +optional
	NextCheckTime *metav1.Time `json:"nextCheckTime,omitempty"`
	// Delivery that takes a snapshot at present.
	// +optional
	Attempt *BackupAttempt `json:"attempt,omitempty"`
	// Conditions of the backup, by type. Ready sums the others up, and its message says what to
	// do.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// BackupAttempt is a delivery that takes a snapshot.
type BackupAttempt struct {
	// Random identity of the delivery.
	Holder string `json:"holder"`
	// Time of the last heartbeat. Another delivery takes over an attempt without a
	// heartbeat for one minute.
	RenewTime metav1.MicroTime `json:"renewTime"`
}

// BackupFile is one snapshot.
type BackupFile struct {
	// Name in the bucket or on the volume, with its path.
	Name string `json:"name"`
	// Size in bytes.
	Size int64 `json:"size"`
	// SHA-256 of the file, which was verified when the snapshot was taken. Absent if
	// the storage has no record of it.
	// +optional
	SHA256 string `json:"sha256,omitempty"`
}
