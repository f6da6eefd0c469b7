// Texts for conditions, reasons, and domain events.

// conditionTexts has the text for True and for False of each type of condition.
const conditionTexts = {
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
  AddonsApplied: ["The add-ons are applied", "Not all add-ons are applied"],
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

// conditionText returns the text for a condition with a status.
export function conditionText(type, status = "True") {
  const [yes, no] = conditionTexts[type] ?? [spaced(type), `Not true: ${spaced(type)}`];
  if (status === "Unknown") return `Not known: ${yes}`;
  return status === "True" ? yes : no;
}

// humanize writes a reason in CamelCase as a text: WaitingForMachines becomes "Waiting for machines".
export const humanize = (reason) => (reason ?? "").replace(/([a-z0-9])([A-Z])/g, (_, a, b) => `${a} ${b.toLowerCase()}`);

// eventTexts has the text for each type of domain event.
export const eventTexts = {
  "infrastructure.machine.created": "Machine runs",
  "infrastructure.machine.deleted": "Machine deleted",
  "infrastructure.cluster.updated": "Cluster changed",
  "infrastructure.operator.status": "Backend changed",
  "infrastructure.network.configured": "Address configured",
};

export const eventText = (type) => eventTexts[type] ?? humanize(type.replace(/^.*?([^.]+\.[^.]+)$/, "$1").replaceAll(".", " "));
