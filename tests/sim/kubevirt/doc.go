// Package kubevirt simulates a cluster that runs KubeVirt 1.9, CDI 1.65 and a
// storage provisioner, on a real API server.
//
// A Simulator installs the released CustomResourceDefinitions, hypervisor Nodes and
// StorageClasses, and then acts as virt-api, virt-controller, virt-handler, CDI,
// the scheduler, the volume binder and the provisioner do: it admits, completes or
// rejects objects in admission webhooks, and reconciles VirtualMachines, their
// instances, DataVolumes and claims. The Guests of its Options run what is inside
// of a machine.
//
// All state is in the API objects. A new simulator continues where a killed one has
// stopped, and starts the guests of running machines again. It writes only changes:
// about eleven requests create a machine with one disk, six delete it, and an idle
// simulator sends none.
//
// # Faults
//
// A plan has these operations. An error fails the step before its effect. For
// vm/start, vmi/run, pvc/bind and pvc/resize an error after the effect (a lost
// acknowledgement) fails the step although it is done. Latency delays it. Failed
// steps are retried.
//
//	admit            a request that creates or updates a machine, instance or DataVolume;
//	                 a number is answered as that HTTP status
//	vm/start         the creation of an instance
//	vmi/schedule     the selection of a node: the error is why there is none
//	vmi/run          the start of the domain; failing before it counts as a failed
//	                 start (CrashLoopBackOff), after it as a crash
//	vmi/boot         the boot of the guest: its agent never answers
//	vmi/pause        the machine is paused when it runs, by the user if the text
//	                 begins with PausedByUser, or else by an I/O error
//	vmi/stop         the stop of the guest
//	pvc/bind         the provisioning of a volume
//	pvc/resize       its growth
//	dv/import        any import; dv/import/<host> only one from that host
//
// # What is simulated
//
// Definitions, defaults, rejections and their messages; finalizers, owners and the
// order of deletion; run strategies with restart, backoff and start requests in the
// status; phases, conditions and printable states; scheduling by CPU and memory
// with KubeVirt's overhead, node selectors and cordons; immediate and late binding,
// default class, expansion and protection of claims in use; imports with populators,
// clones and StorageProfiles; the addresses of a guest from its network data, DHCP and
// agent, including the link-local one that an agent reports; CPU and
// memory hotplug, which wait for a live migration unless LiveMigrate is set, declared
// volume hotplug, and the RestartRequired condition.
//
// # What is not simulated
//
// There are no Pods, so a missing Secret or NetworkAttachmentDefinition shows, as
// with KubeVirt 1.9, only in a Warning about the pod that would exist. There
// are no events of type Normal, no ControllerRevisions, no subresource API (console,
// start, stop, pause; write runStrategy or status.stateChangeRequests, or delete the
// instance), no migrations, instance types, snapshots, affinity, taints, DataSources
// or uploads, and no feature gate can be set. A step without a duration is not stored:
// with zero Times an instance goes from Pending to Running in one write. The machines
// of a deleted node remain.
//
// # The real virt-controller
//
// With RealController, virt-controller of KubeVirt 1.8.4 works on the API server, built
// from its module by tests/judges/kubevirt. The simulator leaves machines and the pods
// of instances to it, and acts as virt-api, CDI, the scheduler, the kubelet and
// virt-handler do. make test-kubevirt runs the tests of this package so, and those
// that do not apply say why. They showed, and the simulator does the same since:
//
//   - A machine is reported without an instance before its instance exists, as
//     Stopped or WaitingForVolumeBinding.
//   - A running instance is Ready only in a later write, because virt-handler reports
//     the guest and virt-controller the pod.
//
// A NetworkAttachmentDefinition that does not exist differs by release: 1.8 creates no
// pod and says so in the condition Synchronized of the instance.
package kubevirt
