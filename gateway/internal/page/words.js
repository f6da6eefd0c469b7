// Conditions and reasons in plain words. A message of a function says what is
// particular; this file says what it means, which role has to act, and what to do.
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
  backends: "Backend",
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
  backends: "backend",
};

// Each rule is a pattern of reasons, the role that has to act, and what to do. The first
// matching rule applies. wait means that the stack continues without an action.
const rules = [
  [/^WaitingForMachines?$/, "wait", "Waiting for its machines. See the machines below for the cause."],
  [/^(NetworkNotReady|NetworkNotAvailable)$/, "wait", "Waiting for the network. See the network for the cause."],
  [/^Held$/, "wait", "The hypervisor holds the keys of the node until the node has started with them."],
  [/^WaitingForAddress$/, "wait", "Waiting for an address from layer 2. See the address for the cause."],
  [
    /^(WaitingFor\w+|Provisioning|Starting|Stopping|Generating|Creating|Releasing|Deleting|Waiting|Retrying|MachinesRunning)$/,
    "wait",
    "No action: this continues without you.",
  ],
  [
    /^OrphansFound$/,
    "operator",
    "Check that the objects in the message are unused, then remove them at the backend with the command in the message; the stack does not remove them. The entry disappears at the next check, within ten minutes.",
  ],
  [/^(Stopped|Paused)$/, "user", "Stopped on purpose. Set spec.powerState: Running (or spec.paused: false) to resume."],
  [/^(PoolExhausted|Exhausted)$/, "network", "Delete unused machines or addresses, or enlarge the pool of the network."],
  [/^(InvalidPool|\w*Overlap\w*|NoIPv4Prefix|SubnetMissing|NetworkNotStatic)$/, "network", "Change the network as the message says."],
  [
    /^(NoNetworkNamespace|NetworkNamespace\w*|NetworkConfigurationNotFound)$/,
    "user",
    "Create the missing network, or name another one.",
  ],
  [
    /^(AddressTaken|AddressOutsidePool|ForeignReservation|DuplicateMACAddress|AddressMismatch)$/,
    "user",
    "Request another address, or release the one in use: the message names its holder.",
  ],
  [
    /^(NoMachineProvider|MachineProvider(Not\w*Found|Ambiguous|NotFound)|Provider(Mismatch|NotExplicit))$/,
    "user",
    "Name an existing machine provider, or mark one as the default.",
  ],
  [
    /^ClusterUnreachable$/,
    "operator",
    "Check that the machines of the cluster run, and that its endpoint is reachable. The stack retries automatically.",
  ],
  [
    /^(ProviderUnavailable|ProviderNotAvailable|KubeVirtApiError|ProxmoxApiError|SourceUnavailable|KeaUnavailable|Unreachable|Unavailable|Offline|NotReachable)$/,
    "operator",
    "Check that the backend runs and is reachable. The stack retries automatically.",
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
    "Add capacity to the hypervisors: add a node, or remove machines.",
  ],
  [
    /^(StorageClassNotFound|DiskNotFound|ImagePullFailed|ImageImportFailed|DataVolume\w*)$/,
    "operator",
    "Provide the storage class or image in the message, or choose another one.",
  ],
  [/^Disk\w*$/, "user", "Change the disks of the machine as the message says."],
  [/^(Workorder\w*|Approval\w*|Awaiting\w*)$/, "user", "Waiting for approval of the work order in the ticketing system."],
  [
    /^(CloudInitSecretNotFound|TemplateNotFound|InvalidSpec|InvalidTopology|InvalidConfiguration|Kubernetes(Version)?\w*|Talos\w*|MachineRefused|Refused|Rejected|ConfigRefused|Invalid\w*)$/,
    "user",
    "Change the manifest as the message says, and apply it again.",
  ],
  [
    /^(NameTaken|AllocationNameTaken|VirtualMachineNameTaken|WrongNode|ForeignNode|Conflict|Protected)$/,
    "user",
    "Remove the conflicting object that the message names.",
  ],
  [
    /^(CrashLoop|EtcdLost|EtcdUnavailable|KeysLost|NodeReset|QuorumAtRisk|VersionSkew|Upgrade\w*|Rotation\w*|VirtualAddressFailed|NotReady|Degraded|Unhealthy|NodesNotReady|NetworkFailed)$/,
    "operator",
    "Check the object named in the message and its logs.",
  ],
];

const people = { user: "requester", network: "network team", operator: "platform team", wait: "no action" };

// verdict returns the state of an item (good, wait, act, bad or idle), the role that has to act, and what to do.
export function verdict(item) {
  const rule = rules.find(([pattern]) => pattern.test(item.reason || item.phase || ""));
  const who = rule?.[1] ?? (item.status === "failed" ? "operator" : "wait");
  let state = "wait";
  if (item.ready) state = /^(Stopped|Paused)$/.test(item.reason ?? "") ? "idle" : "good";
  else if (item.status === "failed" || ["unhealthy", "unreachable"].includes(item.status)) state = "bad";
  else if (item.deleting) state = "idle";
  else if (who !== "wait") state = "act";
  if (item.function && !item.ready) {
    return {
      state: "bad",
      who: people.operator,
      waits: false,
      todo: "Check its Knative Service and its log: the events of its layer wait until it runs.",
    };
  }
  const todo = "schedulable" in item && item.status !== "unknown" ? "Repair or remove the node: until then the other nodes carry its load." : rule?.[2];
  return { state, who: item.owner ?? people[who], waits: who === "wait", todo: todo ?? "See the message for details." };
}

const steps = {
  TopologyValid: "The request is valid",
  NetworkAvailable: "The network is ready",
  CredentialsCreated: "Keys and certificates are created",
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
  Redundant: "Both DHCP servers have the reservation",
  Provisioned: "The segment is provisioned",
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
