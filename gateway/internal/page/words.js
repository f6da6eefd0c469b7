// Conditions and reasons in plain words. A message of a function says what is
// particular; this file says what it means, which role has to act, and what to do.
import { h } from "./dom.js";
import { conditionsPage, overdue, reasons } from "./reasons.js";

// layers have the topics of their objects, and also those whose problems belong to the layer.
export const layers = [
  { number: 1, name: "Networks", topics: ["networks"], functions: ["provision-network"], does: "A segment with prefix, gateway and VLAN" },
  { number: 2, name: "Addresses", topics: ["addresses"], also: ["allocations"], functions: ["allocate-ip", "kea-reserve"], does: "An address for each interface" },
  { number: 3, name: "Machines", topics: ["machines"], functions: ["create-vm"], does: "A virtual machine that runs" },
  { number: 4, name: "Clusters", topics: ["clusters"], also: ["backups"], functions: ["bootstrap-talos"], does: "A Kubernetes cluster in service" },
  {
    number: 5,
    name: "Observability",
    topics: ["providers", "hosts", "operators"],
    functions: ["gateway", "resync"],
    does: "What all of it runs on",
  },
];

export const kindOf = {
  networks: "NetworkNamespace",
  addresses: "NetworkConfiguration",
  allocations: "IPAllocation",
  machines: "Machine",
  providers: "MachineProvider",
  clusters: "KubernetesCluster",
  backups: "EtcdBackup",
  vms: "VirtualMachine",
  hosts: "Hypervisor node",
  operators: "Backend",
  functions: "Function",
  orphans: "Backend with orphans",
  backends: "Backend",
  dependencies: "Part of the installation",
};
export const resourceOf = {
  networks: "networknamespace",
  addresses: "networkconfiguration",
  allocations: "ipallocation",
  machines: "machine",
  providers: "machineprovider",
  clusters: "kubernetescluster",
  backups: "etcdbackup",
  vms: "virtualmachine",
  hosts: "node",
};
export const nounOf = {
  networks: "network",
  addresses: "interface configuration",
  allocations: "address",
  machines: "machine",
  providers: "machine provider",
  clusters: "cluster",
  backups: "etcd backup",
  vms: "virtual machine",
  hosts: "hypervisor node",
  operators: "backend",
  functions: "function",
  orphans: "backend with orphans",
  backends: "backend",
  dependencies: "part of the installation",
};

// Each rule is a pattern of phases, and of reasons that backends and Knative choose, with the role that has to act and what to do.
// The first matching rule applies. reasons.js has the reasons of the functions.
const rules = [
  [/^(Provisioning|Starting|Stopping|Creating|Releasing|Deleting|Waiting|Pending|Scheduling)$/, "no action", "No action: this continues without you."],
  [
    /^(Unreachable|Unavailable|Offline|NotReachable|Degraded|Unhealthy)$/,
    "platform team",
    "Check that the backend runs and is reachable. The stack retries automatically.",
  ],
  [
    /^(Unschedulable|ErrorUnschedulable|NoCapacity)$/,
    "platform team",
    "Add capacity to the hypervisors: add a node, or remove machines.",
  ],
  [/^(Unauthorized|Forbidden|Untrusted)$/, "platform team", "Check the credentials and certificates for the backend."],
  [/^(DataVolume\w*|ErrorPvcNotFound|ErrImagePull|ImagePullBackOff)$/, "platform team", "Provide the storage class or image in the message, or choose another one."],
  [/^(NotReady|NodesNotReady|CrashLoopBackOff)$/, "platform team", "Check the object named in the message and its logs."],
];

// adviceFor returns the role that has to act for an item, and what it does, or nothing.
function adviceFor(item) {
  const known = reasons[`${kindOf[item.topic]}/${item.reason}`] ?? reasons[item.reason];
  if (known) return { who: known[0], todo: known[1] };
  const rule = rules.find(([pattern]) => pattern.test(item.reason || item.phase || ""));
  if (rule) return { who: rule[1], todo: rule[2] };
  if (!item.reason || !stackTopics.includes(item.topic)) return undefined;
  if (item.topic === "networks") return { who: "network team", todo: "Follow the message of the provider of networks." };
  return { who: "platform team", todo: `Follow the message. This version of the page does not know the reason ${item.reason}.` };
}

const stackTopics = ["networks", "addresses", "allocations", "machines", "providers", "clusters", "backups"];

// waitsFor returns the kinds of the objects that an item of a topic waits for, by its reason.
export const waitsFor = (item, topic) => (reasons[`${kindOf[topic]}/${item.reason}`] ?? reasons[item.reason])?.[2] ?? [];

// aboutReason returns a link to the section of the documentation about the reason of an item or a condition, or nothing.
export function aboutReason(reason, topic) {
  if (!reason || !(reasons[`${kindOf[topic]}/${reason}`] ?? reasons[reason])) return undefined;
  return h("a", { class: "about", href: `${conditionsPage}#${reason.toLowerCase()}`, target: "_blank", rel: "noreferrer" }, `About ${reason}`);
}

// late returns the verdict on an item of a topic that has waited too long: a role has to find out why.
export function late(v, topic) {
  const [who, todo] = overdue[kindOf[topic]] ?? overdue.Other;
  return { ...v, who, waits: false, todo };
}

// verdict returns the state of an item (good, wait, act, bad or idle), the role that has to act, and what to do.
export function verdict(item) {
  const advice = adviceFor(item);
  const who = advice?.who ?? (item.status === "failed" ? "platform team" : "no action");
  let state = "wait";
  if (item.ready) state = /^(Stopped|Paused)$/.test(item.reason ?? "") ? "idle" : "good";
  else if (item.status === "failed" || ["unhealthy", "unreachable"].includes(item.status)) state = "bad";
  else if (who !== "no action") state = "act";
  else if (item.deleting) state = "idle";
  if (item.function && !item.ready) {
    return {
      state: "bad",
      who: "platform team",
      waits: false,
      todo: "Check its Knative Service and its log: the events of its layer wait until it runs.",
    };
  }
  const todo = "schedulable" in item && item.status !== "unknown" ? "Repair or remove the node: until then the other nodes carry its load." : advice?.todo;
  const turn = item.owner ?? who;
  return { state, who: turn, waits: turn === "no action", todo: todo ?? "See the message for details." };
}

// steps are the types of conditions in words: what True and what False says.
const steps = {
  TopologyValid: ["The request is valid", "The request is not valid"],
  Approved: ["The work order is approved", "The work order is not approved"],
  NetworkAvailable: ["The network is ready", "The network is not ready"],
  CredentialsCreated: ["Keys and certificates are created", "Keys and certificates are not created"],
  MachinesCreated: ["Machines are requested", "Not all machines are requested"],
  MachinesRunning: ["Machines run", "Not all machines run"],
  ConfigApplied: ["Nodes have their configuration", "Not all nodes have their configuration"],
  Bootstrapped: ["The control plane is started", "The control plane is not started"],
  NodesReady: ["Every node is ready", "Not every node is ready"],
  EtcdHealthy: ["Every member of etcd is healthy", "Not every member of etcd is healthy"],
  ConfigCurrent: ["Nodes run their present configuration", "Nodes run an older configuration"],
  VersionsCurrent: ["Nodes run the versions of the spec", "Nodes run other versions than the spec"],
  MachinesCurrent: ["Machines are as the spec describes them", "Machines are to be replaced"],
  MachinesHealthy: ["Machines are healthy", "Not all machines are healthy"],
  AuthoritiesRotated: ["The authorities are rotated", "The authorities are not rotated"],
  Ready: ["Ready", "Not ready"],
  NetworkReady: ["It has its address", "It has no address"],
  StorageReady: ["It has its disks", "It does not have its disks"],
  MachineConfigRemoved: ["The node has its keys, and the hypervisor does not", "The hypervisor has the keys of the node"],
  VirtualMachineReady: ["The virtual machine runs", "The virtual machine does not run"],
  Redundant: ["Both DHCP servers have the reservation", "Not both DHCP servers have the reservation"],
  RestartRequired: ["A restart is needed", "No restart is needed"],
  OrphansFound: ["The hypervisor has orphans", "The hypervisor has no orphans"],
  PrivilegesGranted: ["All privileges are granted", "Privileges are missing"],
  SpoofProtection: ["Machines send from their own addresses only", "Machines can send from other addresses"],
  Forced: ["The deletion was forced", "The deletion was not forced"],
};

// badWhenTrue are the types of conditions that are True when something needs attention.
export const badWhenTrue = ["RestartRequired", "OrphansFound", "Forced"];

const spaced = (text) => text.replace(/([a-z])([A-Z])/g, (_, a, b) => `${a} ${b.toLowerCase()}`);

// step is a condition in words, by its status.
export function step(type, status = "True") {
  const [yes, no] = steps[type] ?? [spaced(type), `Not true: ${spaced(type)}`];
  if (status === "Unknown") return `Not known: ${yes}`;
  return status === "True" ? yes : no;
}

// words is a reason as words.
export const words = (reason) => (reason ?? "").replace(/([a-z0-9])([A-Z])/g, (_, a, b) => `${a} ${b.toLowerCase()}`);

// eventTypes are the domain events in words.
export const eventTypes = {
  "infrastructure.machine.created": "Machine runs",
  "infrastructure.machine.deleted": "Machine deleted",
  "infrastructure.cluster.updated": "Cluster changed",
  "infrastructure.operator.status": "Backend changed",
  "infrastructure.network.configured": "Address configured",
};

export const eventWords = (type) => eventTypes[type] ?? words(type.replace(/^.*?([^.]+\.[^.]+)$/, "$1").replaceAll(".", " "));
