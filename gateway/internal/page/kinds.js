// The layers of the stack, and the names of the kinds of objects, by topic of the stream.
// layers have the topics of their objects, and also those whose problems belong to the layer.
export const layers = [
  { number: 1, name: "Networks", topics: ["networks"], functions: ["provision-network"], does: "A segment with prefix, gateway and VLAN" },
  { number: 2, name: "Addresses", topics: ["addresses"], also: ["allocations"], functions: ["allocate-ip", "kea-reserve"], does: "An address for each interface" },
  { number: 3, name: "Machines", topics: ["machines"], functions: ["create-vm"], does: "A virtual machine that runs" },
  { number: 4, name: "Clusters", topics: ["clusters"], also: ["clustertemplates", "backups"], functions: ["bootstrap-talos"], does: "A Kubernetes cluster in service" },
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
  clustertemplates: "ClusterTemplate",
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
  clustertemplates: "clustertemplate",
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
  clustertemplates: "cluster template",
  backups: "etcd backup",
  vms: "virtual machine",
  hosts: "hypervisor node",
  operators: "backend",
  functions: "function",
  orphans: "backend with orphans",
  backends: "backend",
  dependencies: "part of the installation",
};

// titleOf returns the title of a view.
export const titleOf = (view) => (view === "clustertemplates" ? "Cluster templates" : view[0].toUpperCase() + view.slice(1));
