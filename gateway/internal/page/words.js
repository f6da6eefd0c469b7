// Conditions and reasons in plain words. A message of a function says what is
// particular; this says what it means, who has to act, and what to do.
export const layers = [
  { number: 1, name: "Networks", topics: ["networks"], functions: ["provision-network"], does: "A segment with prefix, gateway and VLAN" },
  { number: 2, name: "Addresses", topics: ["addresses"], functions: ["allocate-ip", "kea-reserve"], does: "An address for each interface" },
  { number: 3, name: "Machines", topics: ["machines"], functions: ["create-vm"], does: "A virtual machine that runs" },
  { number: 4, name: "Clusters", topics: ["clusters"], functions: ["bootstrap-talos"], does: "A Kubernetes cluster in service" },
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
  vms: "VirtualMachine",
  hosts: "Hypervisor node",
  operators: "Backend",
  functions: "Function",
  orphans: "Backend with orphans",
};
export const resourceOf = {
  networks: "networknamespace",
  addresses: "networkconfiguration",
  allocations: "ipallocation",
  machines: "machine",
  providers: "machineprovider",
  clusters: "kubernetescluster",
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
  vms: "virtual machine",
  hosts: "hypervisor node",
  operators: "backend",
  functions: "function",
  orphans: "backend with orphans",
};

// Each rule is a pattern of reasons, who has to act, and what to do. The first one
// that matches holds. wait is for what goes on by itself.
const rules = [
  [/^WaitingForMachines?$/, "wait", "Its machines are on their way; what holds them up is named with them."],
  [/^(NetworkNotReady|NetworkNotAvailable)$/, "wait", "The network comes first; what holds it up is named with it."],
  [/^Held$/, "wait", "The hypervisor has the keys of the node until the node has started with them."],
  [/^WaitingForAddress$/, "wait", "Layer 2 gives the address out; what holds it up is named there."],
  [
    /^(WaitingFor\w+|Provisioning|Starting|Stopping|Generating|Creating|Releasing|Deleting|Waiting|Retrying|MachinesRunning)$/,
    "wait",
    "Nothing to do: it goes on by itself.",
  ],
  [
    /^OrphansFound$/,
    "operator",
    "Check that nobody needs what the message names, then remove it at the backend with the command that it says: the stack removes none of it. The entry goes at the next check, within ten minutes.",
  ],
  [/^(Stopped|Paused)$/, "user", "It is off because that is asked for: change spec.powerState or spec.paused to go on."],
  [/^(PoolExhausted|Exhausted)$/, "network", "Delete what is no longer used, or enlarge the pool of the network."],
  [/^(InvalidPool|\w*Overlap\w*|NoIPv4Prefix|SubnetMissing|NetworkNotStatic)$/, "network", "Change the network as the message says."],
  [
    /^(NoNetworkNamespace|NetworkNamespace\w*|NetworkConfigurationNotFound)$/,
    "user",
    "Create the network that is missing, or name another one.",
  ],
  [
    /^(AddressTaken|AddressOutsidePool|ForeignReservation|DuplicateMACAddress|AddressMismatch)$/,
    "user",
    "Ask for another address, or free the one that is taken: the message names its holder.",
  ],
  [
    /^(NoMachineProvider|MachineProvider(Not\w*Found|Ambiguous|NotFound)|Provider(Mismatch|NotExplicit))$/,
    "user",
    "Name a machine provider that exists, or mark one as the default.",
  ],
  [
    /^(ProviderUnavailable|ProviderNotAvailable|KubeVirtApiError|ProxmoxApiError|SourceUnavailable|KeaUnavailable|Unreachable|Unavailable|Offline|NotReachable)$/,
    "operator",
    "Check that the backend runs and can be reached; it is tried again by itself.",
  ],
  [/^(Machine)?Provider(NotConfigured|NotSupported)$/, "operator", "Configure the backend in this installation, or choose another one."],
  [
    /^(KeaUnauthorized|KeaUntrusted|Unauthorized|Forbidden|Untrusted|(Source|Provider)?Unauthorized|\w*Credentials\w*)$/,
    "operator",
    "Check the credentials and certificates for the backend.",
  ],
  [/^Kea\w*$/, "operator", "Change the DHCP server's configuration as the message says."],
  [
    /^(InsufficientResources|Unschedulable|ErrorUnschedulable|NoCapacity)$/,
    "operator",
    "Make room on the hypervisors: add a node, or remove machines.",
  ],
  [
    /^(StorageClassNotFound|DiskNotFound|ImagePullFailed|ImageImportFailed|DataVolume\w*)$/,
    "operator",
    "Provide the storage class or image that the message names, or ask for another one.",
  ],
  [/^Disk\w*$/, "user", "Change the disks of the machine as the message says."],
  [/^(Workorder\w*|Approval\w*|Awaiting\w*)$/, "user", "Somebody has to approve it: ask whoever decides on work orders."],
  [
    /^(CloudInitSecretNotFound|TemplateNotFound|InvalidSpec|InvalidTopology|InvalidConfiguration|Kubernetes(Version)?\w*|Talos\w*|MachineRefused|Refused|Rejected|ConfigRefused|Invalid\w*)$/,
    "user",
    "Change the manifest as the message says, and apply it again.",
  ],
  [
    /^(NameTaken|AllocationNameTaken|VirtualMachineNameTaken|WrongNode|ForeignNode|Conflict|Protected)$/,
    "user",
    "Remove what stands in the way: the message names it.",
  ],
  [
    /^(CrashLoop|EtcdLost|EtcdUnavailable|KeysLost|NodeReset|QuorumAtRisk|VersionSkew|Upgrade\w*|Rotation\w*|VirtualAddressFailed|NotReady|Degraded|Unhealthy|NodesNotReady|NetworkFailed)$/,
    "operator",
    "Look at what the message names, and at its own log.",
  ],
];

const people = { user: "whoever asked for it", network: "whoever runs the network", operator: "whoever runs the platform", wait: "nobody" };

// verdict says how an item stands: state is good, wait, act or bad.
export function verdict(item) {
  const rule = rules.find(([pattern]) => pattern.test(item.reason || item.phase || ""));
  const who = rule?.[1] ?? (item.status === "failed" ? "operator" : "wait");
  let state = "wait";
  if (item.ready) state = "good";
  else if (item.status === "failed" || ["unhealthy", "unreachable"].includes(item.status)) state = "bad";
  else if (item.deleting) state = "idle";
  else if (who !== "wait") state = item.phase === "Stopped" ? "idle" : "act";
  if (item.function && !item.ready) {
    return {
      state: "bad",
      who: people.operator,
      waits: false,
      todo: "Look at its Knative Service and its log: the events of its layer wait until it runs.",
    };
  }
  const todo = "schedulable" in item ? "Bring the node back, or take it out: until then the others carry its load." : rule?.[2];
  return { state, who: people[who], waits: who === "wait", todo: todo ?? "The message says what it waits for." };
}

const steps = {
  TopologyValid: "The request is understood",
  NetworkAvailable: "The network is there",
  CredentialsCreated: "Keys and certificates are made",
  MachinesCreated: "Machines are requested",
  MachinesRunning: "Machines run",
  ConfigApplied: "Nodes have their configuration",
  Bootstrapped: "The control plane is started",
  NodesReady: "Every node is ready",
  Ready: "In service",
  HighlyAvailable: "Survives the loss of a node",
  Upgrade: "Upgrade",
  NetworkReady: "Has its address",
  StorageReady: "Has its disks",
  MachineConfigRemoved: "Node has its keys, and the hypervisor does not",
  VirtualMachineReady: "The virtual machine runs",
  Redundant: "Both DHCP servers know it",
  Provisioned: "The segment is there",
};

// step is a condition's type in words.
export const step = (type) => steps[type] ?? type.replace(/([a-z])([A-Z])/g, (_, a, b) => `${a} ${b.toLowerCase()}`);

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
