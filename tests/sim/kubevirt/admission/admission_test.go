package admission_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/vitistack/stack/tests/sim/kubevirt/admission"
)

// machine decodes the template spec of a valid machine, with edits.
func machine(t *testing.T, edits ...string) *virtv1.VirtualMachine {
	t.Helper()
	const text = `
spec:
  runStrategy: Always
  template:
    metadata: {labels: {app: x}}
    spec:
      domain:
        cpu: {cores: 2}
        memory: {guest: 4Gi}
        devices:
          disks:
          - {name: root, bootOrder: 1, disk: {bus: virtio}}
          - {name: iso, bootOrder: 3, cdrom: {bus: sata}}
          - {name: config, disk: {bus: virtio}}
          interfaces:
          - {name: nic0, model: virtio, bootOrder: 2, macAddress: "02:00:00:00:00:01", bridge: {}}
      networks:
      - {name: nic0, multus: {networkName: vlan200}}
      volumes:
      - {name: root, persistentVolumeClaim: {claimName: root}}
      - {name: iso, persistentVolumeClaim: {claimName: iso}}
      - {name: config, cloudInitNoCloud: {userData: "#cloud-config"}}
`
	vm := &virtv1.VirtualMachine{}
	if err := yaml.UnmarshalStrict([]byte(strings.NewReplacer(edits...).Replace(text)), vm); err != nil {
		t.Fatal(err)
	}
	return vm
}

// inKubeVirt18 is what the webhooks of KubeVirt 1.8 answer to cases of TestValidateMachine where those of 1.9, which the package
// follows, answer something else.
var inKubeVirt18 = map[string]string{
	"EmptyDrive": "DeclarativeHotplugVolumes feature gate not enabled, cannot define an empty CD-ROM disk", // on by default since 1.9
	"NoBinding":  "",                                                                                       // checked since 1.9
}

var created = admission.Request{Created: true, Namespace: "ns"}

func TestValidateMachine(t *testing.T) {
	t.Parallel()
	const devices = "spec.template.spec.domain.devices."
	cases := map[string]struct {
		reason string
		edits  []string
		want   string // the message; empty if it is accepted
	}{
		"Fine":        {"a usual machine is accepted", nil, ""},
		"Strategy":    {"an unknown strategy", []string{"Always", "Sometimes"}, "Invalid RunStrategy (Sometimes)"},
		"Receiver":    {"the strategy requires a feature gate", []string{"Always", "WaitAsReceiver"}, "Invalid RunStrategy (WaitAsReceiver), DecentralizedLiveMigration feature gate is not enabled in kubevirt resource"},
		"NoStrategy":  {"a strategy is required", []string{"runStrategy: Always", "updateVolumesStrategy: Replacement"}, "RunStrategy must be specified"},
		"Labels":      {"reserved labels are rejected", []string{"app: x", "kubevirt.io/created-by: me"}, "creation of the following reserved kubevirt.io/ labels on a VMI object is prohibited"},
		"Sidecar":     {"sidecars require a feature gate", []string{"labels: {app: x}", `annotations: {hooks.kubevirt.io/hookSidecars: "[]"}`}, "sidecar feature gate is not enabled in kubevirt-config, invalid entry spec.template.metadata.annotations.hooks.kubevirt.io/hookSidecars"},
		"Hostname":    {"a host name is a DNS label", []string{"      domain:", "      hostname: a.b\n      domain:"}, "spec.template.spec.hostname does not conform to the kubernetes DNS_LABEL rules : "},
		"Memory":      {"memory is not negative", []string{"memory: {guest: 4Gi}", "resources: {requests: {memory: -1Gi}}"}, "spec.template.spec.domain.resources.requests.memory '-1Gi': must be greater than or equal to 0."},
		"LittleMem":   {"memory has a minimum", []string{"memory: {guest: 4Gi}", "resources: {requests: {memory: 1k}}"}, "spec.template.spec.domain.resources.requests.memory '1k': must be greater than or equal to 1M."},
		"MemLimit":    {"memory is at most its limit", []string{"memory: {guest: 4Gi}", "resources: {requests: {memory: 2Gi}, limits: {memory: 1Gi}}"}, "spec.template.spec.domain.resources.requests.memory '2Gi' is greater than spec.template.spec.domain.resources.limits.memory '1Gi'"},
		"CPU":         {"CPU is not negative", []string{"cpu: {cores: 2}", "resources: {requests: {cpu: -1}}"}, "spec.template.spec.domain.resources.requests.cpu '-1': must be greater than or equal to 0."},
		"CPULimit":    {"CPU is at most its limit", []string{"cpu: {cores: 2}", "resources: {requests: {cpu: 2}, limits: {cpu: 1}}"}, "spec.template.spec.domain.resources.requests.cpu '2' is greater than spec.template.spec.domain.resources.limits.cpu '1'"},
		"Sockets":     {"sockets are at most their maximum", []string{"cpu: {cores: 2}", "cpu: {sockets: 4, maxSockets: 2}"}, "Number of sockets in CPU topology is greater than the maximum sockets allowed, Number of sockets in CPU topology is greater than the maximum sockets allowed"},
		"Feature":     {"CPU features have known policies", []string{"cpu: {cores: 2}", "cpu: {features: [{name: apic, policy: maybe}]}"}, "CPU feature apic uses policy maybe that is not supported."},
		"Isolated":    {"an isolated emulator thread requires dedicated CPUs", []string{"cpu: {cores: 2}", "cpu: {isolateEmulatorThread: true}"}, "IsolateEmulatorThread should be only set in combination with DedicatedCPUPlacement"},
		"MaxGuest":    {"memory that can grow is aligned", []string{"memory: {guest: 4Gi}", "memory: {guest: 1100M, maxGuest: 4Gi}"}, "Guest memory must be 2Mi aligned"},
		"MachineType": {"only q35", []string{"cpu: {cores: 2}", "machine: {type: pc-i440fx-2.10}"}, "spec.template.spec.domain.machine.type is not supported: pc-i440fx-2.10 (allowed values: [q35* pc-q35*])"},
		"MachineQ35":  {"a version of q35 is accepted", []string{"cpu: {cores: 2}", "machine: {type: pc-q35-rhel9.6.0}"}, ""},
		"SecureBoot":  {"EFI implies secure boot, which requires SMM", []string{"cpu: {cores: 2}", "firmware: {bootloader: {efi: {}}}"}, "spec.template.spec.domain has EFI SecureBoot enabled. SecureBoot requires SMM, which is currently disabled."},
		"SMM":         {"SMM makes secure boot valid", []string{"cpu: {cores: 2}", "firmware: {bootloader: {efi: {}}}\n        features: {smm: {}}"}, ""},
		"Insecure":    {"EFI without secure boot requires no SMM", []string{"cpu: {cores: 2}", "firmware: {bootloader: {efi: {secureBoot: false}}}"}, ""},
		"Firmwares":   {"one firmware", []string{"cpu: {cores: 2}", "firmware: {bootloader: {efi: {secureBoot: false}, bios: {}}}"}, "spec.template.spec.domain.firmware.bootloader has both EFI and BIOS configured, but they are mutually exclusive."},
		"KernelArgs":  {"kernel arguments require a kernel", []string{"cpu: {cores: 2}", "firmware: {kernelBoot: {kernelArgs: quiet}}"}, "kernel arguments cannot be provided without an external kernel"},
		"BootOrder":   {"boot orders are unique over disks and interfaces", []string{"bootOrder: 2", "bootOrder: 1"}, "Boot order for " + devices + "interfaces[0].bootOrder already set for a different device."},
		"BootDisks":   {"boot orders are unique among disks", []string{"bootOrder: 3", "bootOrder: 1"}, "Boot order for " + devices + "disks[1].bootOrder already set for a different device."},
		"BootZero":    {"boot orders start at one", []string{"bootOrder: 1", "bootOrder: 0"}, devices + "disks[0] must have a boot order > 0, if supplied"},
		"IDE":         {"IDE is not supported any more", []string{"bootOrder: 1, disk: {bus: virtio}", "bootOrder: 1, disk: {bus: ide}"}, "IDE bus is not supported"},
		"Bus":         {"an unknown bus", []string{"bootOrder: 1, disk: {bus: virtio}", "bootOrder: 1, disk: {bus: isa}"}, devices + "disks[0] is set with an unrecognized bus isa, must be one of: [virtio scsi sata usb]"},
		"CDRom":       {"a CD drive cannot be on virtio", []string{"cdrom: {bus: sata}", "cdrom: {bus: virtio}"}, "Bus type virtio is invalid for CD-ROM device"},
		"NoVolume":    {"a disk requires a volume", []string{"{name: root, persistentVolumeClaim", "{name: toor, persistentVolumeClaim"}, devices + "disks[0].Name 'root' not found."},
		"EmptyDrive":  {"a CD drive may be empty", []string{"      - {name: iso, persistentVolumeClaim: {claimName: iso}}\n", ""}, ""},
		"DiskName":    {"names of disks are DNS labels", []string{"name: root", "name: Root"}, "a lowercase RFC 1123 label must consist of"},
		"DiskTwice":   {"and unique", []string{"name: config, disk", "name: root, disk"}, devices + "disks[2] and " + devices + "disks[0] must not have the same Name."},
		"Targets":     {"a disk has one target", []string{"cdrom: {bus: sata}", "cdrom: {bus: sata}, disk: {}"}, devices + "disks[1] can only have a single target type defined"},
		"Serial":      {"a serial has a limited character set", []string{"bootOrder: 1,", "bootOrder: 1, serial: a/b,"}, devices + "disks[0] must be made up of the following characters [A-Za-z0-9_.+-], if specified"},
		"VolTwice":    {"names of volumes are unique", []string{"{name: config, cloud", "{name: iso, cloud"}, "must not have the same Name."},
		"NoSource":    {"a volume requires a source", []string{"persistentVolumeClaim: {claimName: root}", "dataVolume: null"}, "spec.template.spec.volumes[0] must have exactly one source type set"},
		"TwoSources":  {"a volume has one source", []string{"claimName: root}", "claimName: root}, dataVolume: {name: root}"}, "spec.template.spec.volumes[0] must have exactly one source type set"},
		"NoData":      {"cloud-init requires data", []string{`userData: "#cloud-config"`, ""}, "spec.template.spec.volumes[2].cloudInitNoCloud must have at least one userdatasource or one networkdatasource set."},
		"TwoForms":    {"cloud-init data has one source", []string{`userData: "#cloud-config"`, `userData: a, secretRef: {name: s}`}, "spec.template.spec.volumes[2].cloudInitNoCloud must have only one userdatasource set."},
		"BigNetwork":  {"inline network data is limited", []string{`userData: "#cloud-config"`, "networkData: " + strings.Repeat("n", 2049)}, "spec.template.spec.volumes[2].cloudInitNoCloud networkdata exceeds 2048 byte limit. Should use NetworkDataSecretRef for larger data."},
		"FullUser":    {"2048 bytes are accepted", []string{`userData: "#cloud-config"`, "userData: " + strings.Repeat("n", 2048)}, ""},
		"BigBase64":   {"the limit applies to the decoded size", []string{`userData: "#cloud-config"`, "userDataBase64: " + strings.Repeat("QUFB", 683)}, "spec.template.spec.volumes[2].cloudInitNoCloud userdata exceeds 2048 byte limit. Should use UserDataSecretRef for larger data."},
		"NoBase64":    {"the value must be base64", []string{`userData: "#cloud-config"`, "userDataBase64: '%'"}, "spec.template.spec.volumes[2].cloudInitNoCloud.userDataBase64.cloudInitNoCloud.userDataBase64 is not a valid base64 value."},
		"HostDisk":    {"host disks require a feature gate", []string{"persistentVolumeClaim: {claimName: root}", "hostDisk: {path: /x, type: Disk}"}, "HostDisk feature gate is not enabled"},
		"Model":       {"an unknown NIC model", []string{"model: virtio", "model: tulip"}, "interface " + devices + "interfaces[0].name uses model tulip that is not supported."},
		"MAC":         {"a malformed MAC address", []string{`"02:00:00:00:00:01"`, `"02:00:00:00:00"`}, "interface " + devices + "interfaces[0].name has malformed MAC address (02:00:00:00:00)."},
		"LongMAC":     {"of Ethernet", []string{`"02:00:00:00:00:01"`, `"02:00:00:00:00:00:00:01"`}, "interface " + devices + "interfaces[0].name has too long MAC address (02:00:00:00:00:00:00:01)."},
		"NICName":     {"a NIC name has a limited character set", []string{"nic0", "nic.0"}, "Network interface name can only contain alphabetical characters, numbers, dashes (-) or underscores (_)"},
		"NoNIC":       {"a network requires an interface", []string{"{name: nic0, multus", "{name: net0, multus"}, "spec.template.spec.networks[0].name 'net0' not found., " + devices + "interfaces[0].name 'nic0' not found."},
		"NoBinding":   {"an interface requires a binding", []string{", bridge: {}", ""}, "logical nic0 interface must have exactly one binding method or binding plugin"},
		"Masquerade":  {"masquerade requires the pod network", []string{"bridge: {}", "masquerade: {}"}, "Masquerade interface only implemented with pod network"},
		"Slirp":       {"slirp is not supported any more", []string{"bridge: {}", "slirp: {}"}, "Slirp interface support has been discontinued since v1.3"},
		"NetworkKind": {"a network requires a type", []string{"multus: {networkName: vlan200}", "pod: null"}, "should have a network type"},
		"NetworkName": {"a Multus network requires a name", []string{"networkName: vlan200", `networkName: ""`}, "CNI delegating plugin must have a networkName"},
		"TwoPods":     {"at most one pod network", []string{"{name: nic0, multus: {networkName: vlan200}}", "{name: nic0, pod: {}}\n      - {name: nic1, pod: {}}", "bridge: {}}", "bridge: {}}\n          - {name: nic1, masquerade: {}}"}, "more than one interface is connected to a pod network in spec.template.spec.interfaces"},
		"Eviction":    {"an unknown eviction strategy", []string{"      domain:", "      evictionStrategy: Never\n      domain:"}, "spec.template.spec.evictionStrategy is set with an unrecognized option: Never"},
		"HostDevice":  {"host devices require a feature gate", []string{"          disks:", "          hostDevices: [{name: a, deviceName: b}]\n          disks:"}, "Host Devices feature gate is not enabled in kubevirt-config"},
		"Template":    {"a DataVolume template must be used", []string{"  template:", "  dataVolumeTemplates: [{metadata: {name: other}, spec: {source: {blank: {}}, storage: {}}}]\n  template:"}, "DataVolumeTemplate entry spec.dataVolumeTemplate[0] must be referenced in the VMI template's 'volumes' list"},
		"TemplateNS":  {"a DataVolume template has the machine's namespace", []string{"  template:", "  dataVolumeTemplates: [{metadata: {name: root, namespace: far}, spec: {source: {blank: {}}, storage: {}}}]\n  template:"}, "Embedded DataVolume namespace far differs from VM namespace ns"},
		"NoStorage":   {"a DataVolume template requires storage", []string{"  template:", "  dataVolumeTemplates: [{metadata: {name: root}, spec: {source: {blank: {}}}}]\n  template:"}, "Missing Data volume PVC or Storage"},
		"Probe":       {"network probes require the pod network", []string{"      domain:", "      readinessProbe: {tcpSocket: {port: 80}}\n      domain:"}, "spec.template.spec.readinessProbe.tcpSocket is only allowed if the Pod Network is attached"},
		"DNS":         {"DNS policy None requires servers", []string{"      domain:", "      dnsPolicy: None\n      domain:"}, "must provide `dnsConfig` when `dnsPolicy` is None"},
		"SSHKey":      {"a config drive is required for the keys", []string{"      domain:", "      accessCredentials: [{sshPublicKey: {source: {secret: {secretName: s}}, propagationMethod: {configDrive: {}}}}]\n      domain:"}, "spec.template.spec.accessCredentials[0] requires a configDrive volume to exist when the configDrive propagationMethod is in use."},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			vm := machine(t, tc.edits...)
			admission.DefaultMachine(vm, true)
			causes, _ := admission.ValidateMachine(vm, nil, created)
			got := causes.Message()
			if (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) {
				t.Errorf("%s:\n got %q\nwant %q", tc.reason, got, tc.want)
			}
			real := refusal(ask(t, "/virtualmachines-validate", machineRequest(t, vm)))
			if older, ok := inKubeVirt18[name]; ok {
				got = older
			}
			if got != real {
				t.Errorf("%s:\n      got %q\nKubeVirt: %q", tc.reason, got, real)
			}
		})
	}
}

func TestTemplateIsRequired(t *testing.T) {
	t.Parallel()
	causes, _ := admission.ValidateMachine(&virtv1.VirtualMachine{}, nil, created)
	if got := causes.Message(); got != "missing virtual machine template." {
		t.Errorf("a machine without a template: got %q", got)
	}
}

func TestDeletionIsNotValidated(t *testing.T) {
	t.Parallel()
	vm := machine(t, "Always", "Sometimes")
	vm.DeletionTimestamp = new(metav1.Now())
	if causes, _ := admission.ValidateMachine(vm, nil, created); len(causes) > 0 {
		t.Errorf("a machine that is being deleted is rejected: %s", causes.Message())
	}
}

func TestManyCauses(t *testing.T) {
	t.Parallel()
	var causes admission.Causes
	for range 13 {
		causes = append(causes, metav1.StatusCause{Message: "no"})
	}
	want := strings.Repeat("no, ", 9) + "no, and 3 more validation errors"
	if got := causes.Message(); got != want || len(causes.Named()) != 10 {
		t.Errorf("got %q with %d named, want %q with 10", got, len(causes.Named()), want)
	}
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	vm := machine(t)
	admission.DefaultMachine(vm, true)
	once := vm.DeepCopy()
	admission.DefaultMachine(vm, true)
	if diff := cmp.Diff(once, vm); diff != "" {
		t.Errorf("a second call changes the machine (-once +twice):\n%s", diff)
	}
	spec := vm.Spec.Template.Spec
	if spec.Architecture != "amd64" || spec.Domain.Machine.Type != "q35" || spec.Domain.Firmware.UUID == "" || spec.Domain.Firmware.Serial == "" {
		t.Errorf("machine has %s, %v, %v", spec.Architecture, spec.Domain.Machine, spec.Domain.Firmware)
	}

	vmi := &virtv1.VirtualMachineInstance{Spec: *spec.DeepCopy()}
	vmi.Spec.Domain.CPU = nil
	vmi.Spec.Domain.Devices = virtv1.Devices{}
	vmi.Spec.Networks = nil
	admission.DefaultInstance(vmi)
	domain := vmi.Spec.Domain
	if domain.CPU.Sockets != 1 || domain.CPU.MaxSockets != 4 || domain.CPU.Model != "host-model" || domain.Memory.MaxGuest.String() != "16Gi" {
		t.Errorf("instance has CPU %+v and memory %+v", domain.CPU, domain.Memory)
	}
	if len(domain.Devices.Disks) != 3 || domain.Devices.Disks[0].Disk.Bus != "sata" {
		t.Errorf("volumes became disks %+v, want three on sata", domain.Devices.Disks)
	}
	if len(vmi.Spec.Networks) != 1 || vmi.Spec.Networks[0].Pod == nil || domain.Devices.Interfaces[0].Masquerade == nil {
		t.Errorf("networks are %+v, want the pod network", vmi.Spec.Networks)
	}
}

func TestValidateDataVolume(t *testing.T) {
	t.Parallel()
	const fine = `{metadata: {name: d, namespace: ns}, spec: {source: {http: {url: "https://x/y"}}, storage: {resources: {requests: {storage: 1Gi}}}}}`
	cases := map[string]struct {
		reason string
		edits  []string
		old    string
		claim  *corev1.PersistentVolumeClaim
		want   string
	}{
		"Fine":      {reason: "a valid DataVolume is accepted"},
		"NoStorage": {"storage is required", []string{"storage: {resources: {requests: {storage: 1Gi}}}", "priorityClassName: x"}, "", nil, "Missing Data volume PVC"},
		"Both":      {"pvc and storage exclude each other", []string{"storage: {res", "pvc: {}, storage: {res"}, "", nil, "Duplicate storage definition, both target storage and target pvc defined"},
		"NoSize":    {"with a size", []string{"{requests: {storage: 1Gi}}", "{}"}, "", nil, "Storage size is missing"},
		"Zero":      {"above zero", []string{"1Gi", "0"}, "", nil, "Storage size can't be equal or less than zero"},
		"Tiny":      {"the size has a minimum", []string{"1Gi", "1k"}, "", nil, "Storage size should be at least 1MiB"},
		"Modes":     {"a claim requires an access mode", []string{"storage: {res", "pvc: {res"}, "", nil, "Required value: at least 1 access mode is required"},
		"Mode":      {"an unknown access mode", []string{"storage: {res", "pvc: {accessModes: [Often], res"}, "", nil, `Unsupported value: "Often"`},
		"NoSource":  {"a DataVolume requires a source", []string{`source: {http: {url: "https://x/y"}}, `, ""}, "", nil, "Data volume should have either Source or SourceRef, or be externally populated"},
		"Sources":   {"a DataVolume has one source", []string{`"https://x/y"}`, `"https://x/y"}, blank: {}`}, "", nil, "Multiple Data volume sources"},
		"URL":       {"a malformed URL", []string{"https://x/y", "x"}, "", nil, "spec.source Invalid source URL: x"},
		"Scheme":    {"an unknown scheme", []string{"https://x/y", "ftp://x/y"}, "", nil, "spec.source Invalid source URL scheme: ftp://x/y"},
		"Registry":  {"a registry's too", []string{`http: {url: "https://x/y"}`, `registry: {url: "https://x/y"}`}, "", nil, "Illegal registry source URL scheme https://x/y"},
		"Changed":   {"the spec is immutable", []string{"1Gi", "2Gi"}, fine, nil, "Cannot update DataVolume Spec"},
		"Claim":     {"a claim of the same name exists", nil, "", &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "d", Namespace: "ns"}}, "Destination PVC ns/d already exists"},
		"Adopted":   {"a claim that may be adopted is accepted", []string{"name: d,", `name: d, annotations: {cdi.kubevirt.io/allowClaimAdoption: "true"},`}, "", &corev1.PersistentVolumeClaim{}, ""},
		"Reference": {"an unknown kind of reference", []string{`source: {http: {url: "https://x/y"}}`, "sourceRef: {kind: PVC, name: x}"}, "", nil, "Unsupported sourceRef kind PVC, currently only DataSource is supported"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dv := decode(t, strings.NewReplacer(tc.edits...).Replace(fine))
			var old *cdiv1.DataVolume
			if tc.old != "" {
				old = decode(t, tc.old)
			}
			got := admission.ValidateDataVolume(dv, old, tc.claim).Message()
			if (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) {
				t.Errorf("%s:\n got %q\nwant %q", tc.reason, got, tc.want)
			}
		})
	}
}

func decode(t *testing.T, text string) *cdiv1.DataVolume {
	t.Helper()
	dv := &cdiv1.DataVolume{}
	if err := yaml.UnmarshalStrict([]byte(text), dv); err != nil {
		t.Fatal(err)
	}
	return dv
}
