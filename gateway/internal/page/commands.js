// The commands that a user copies from the page of an object. Each is right for the object as it is: its namespace, its pools, its
// Secrets and its versions.
import { copyButton, h } from "./dom.js";
import { connection } from "./connection.js";
import { newestKubernetes } from "./reasons.js";
import { resourceOf } from "./kinds.js";

// commands renders shell commands, each with a button that copies it.
export const commands = (list) =>
  h(
    "ul",
    { class: "commands plain" },
    list.map(([what, command]) =>
      h(
        "li",
        { key: what },
        h("p", { class: "small soft" }, what),
        h("div", { class: "command" }, h("code", { tabindex: "0" }, command), copyButton(command, what)),
      ),
    ),
  );

// curl reads a path of this gateway. The variable VITI_KEY has the API key, where one is needed.
export const curl = (path, flags = "-fsS") =>
  `curl ${flags} ${connection.session?.required ? '-H "Authorization: Bearer $VITI_KEY" ' : ""}'${location.origin}${path}'`;

const at = (item) => (item.namespace ? ` -n ${item.namespace}` : "");
const target = (topic, item) => `${resourceOf[topic]} ${item.name}${at(item)}`;

// merge changes fields of an object.
const merge = (topic, item, spec) => `kubectl patch ${target(topic, item)} --type merge -p '${JSON.stringify({ spec })}'`;

// change applies a JSON patch, which names the place of a pool and tests that the pool is there.
const change = (topic, item, operations) => `kubectl patch ${target(topic, item)} --type json -p '${JSON.stringify(operations)}'`;

const look = (topic, item) => [
  ["Describe", `kubectl describe ${target(topic, item)}`],
  ["Manifest and status", `kubectl get ${target(topic, item)} -o yaml`],
  ["Why it is not Ready, and what belongs to it (kubectl viti)", `kubectl viti why ${resourceOf[topic]}/${item.name}${at(item)} && kubectl viti tree ${resourceOf[topic]}/${item.name}${at(item)}`],
  ["Reconcile now", `kubectl annotate ${target(topic, item)} vitistack.io/reconcile="$(date +%s)" --overwrite`],
  ["Over REST", curl(`/api/v1/${topic}/${encodeURIComponent(item.id)}`)],
];

const protect = (topic, item, spec) =>
  spec && [spec.protected ? "Allow its deletion" : "Protect it from deletion", merge(topic, item, { protected: !spec.protected })];

// scalings are the commands that give each pool one node more. An autoscaled pool is left to its autoscaler. Control planes come in
// odd numbers.
function scalings(item, topology) {
  const list = [];
  const planes = topology.controlplane?.replicas;
  if (planes) {
    const path = "/spec/topology/controlplane/replicas";
    const wanted = planes < 3 ? 3 : 5;
    if (planes < 5)
      list.push([
        `Scale the control plane from ${planes} to ${wanted}`,
        change("clusters", item, [{ op: "test", path, value: planes }, { op: "replace", path, value: wanted }]),
      ]);
  }
  (topology.workers ?? []).forEach((pool, n) => {
    if (pool.autoscaling?.enabled) return;
    const path = `/spec/topology/workers/${n}`;
    list.push([
      `Scale ${pool.name} from ${pool.replicas} to ${pool.replicas + 1}`,
      change("clusters", item, [{ op: "test", path: `${path}/name`, value: pool.name }, { op: "replace", path: `${path}/replicas`, value: pool.replicas + 1 }]),
    ]);
  });
  return list;
}

// nextVersion is the minor version after the running one, if the Talos version of the cluster runs it.
function nextVersion(item, topology) {
  const minorOf = (text) => /^v?(\d+\.\d+)/.exec(text ?? "")?.[1];
  const [major, minor] = (minorOf(item.version || topology.version) ?? "0.0").split(".").map(Number);
  const [newestMajor, newestMinor] = (newestKubernetes[minorOf(item.talosVersion)] ?? "0.0").split(".").map(Number);
  return major === newestMajor && minor < newestMinor ? `${major}.${minor + 1}` : undefined;
}

function upgrades(item, topology) {
  const list = [["What runs, and which upgrades are possible (kubectl viti)", `kubectl viti upgrade ${item.name}${at(item)}`]];
  const version = nextVersion(item, topology);
  if (!version || item.clusterTemplate) return list; // kubectl viti says what an upgrade of its own means for a ClusterTemplate
  const operations = [{ op: "replace", path: "/spec/topology/version", value: version }];
  if (topology.controlplane?.version) operations.push({ op: "replace", path: "/spec/topology/controlplane/version", value: version });
  (topology.workers ?? []).forEach((pool, n) => {
    if (!pool.version) return;
    const path = `/spec/topology/workers/${n}`;
    operations.push({ op: "test", path: `${path}/name`, value: pool.name }, { op: "replace", path: `${path}/version`, value: version });
  });
  list.push([`Upgrade to Kubernetes ${version}`, change("clusters", item, operations)]);
  return list;
}

function clusterCommands(c, spec, status) {
  const list = [...look("clusters", c)];
  const secret = (name, key) =>
    `(umask 077 && kubectl get secret ${name}${at(c)} -o jsonpath='{.data.${key}}' | base64 -d > ${c.name}.${key})`;
  if (status?.secrets?.kubeconfig) {
    list.push(
      ["Download its kubeconfig", secret(status.secrets.kubeconfig, "kubeconfig")],
      ["Merge its kubeconfig into your own (kubectl viti)", `kubectl viti kubeconfig ${c.name}${at(c)} --merge`],
      ["List its nodes (needs the kubeconfig)", `kubectl --kubeconfig ${c.name}.kubeconfig get nodes -o wide`],
    );
  }
  if (status?.secrets?.talosconfig) list.push(["Download its talosconfig", secret(status.secrets.talosconfig, "talosconfig")]);
  if (spec) {
    list.push(
      [spec.paused ? "Resume" : "Pause all changes to it", merge("clusters", c, { paused: !spec.paused })],
      ...scalings(c, spec.topology ?? {}),
      ...upgrades(c, spec.topology ?? {}),
      protect("clusters", c, spec),
    );
  }
  list.push(
    ["List its machines", `kubectl get machines${at(c)} -l cluster.vitistack.io/cluster-name=${c.name} -o wide`],
    ["Timeline over REST", curl(`/api/v1/clusters/${c.id}/timeline`)],
    ["Watch its namespace over REST", curl(`/api/v1/stream?topics=clusters,machines&namespace=${c.namespace}`, "-fsSN")],
  );
  return list;
}

const special = {
  clusters: clusterCommands,
  machines: (m, spec) => [
    ...look("machines", m),
    m.powerState === "Stopped" ? ["Start it", merge("machines", m, { powerState: "Running" })] : ["Switch it off", merge("machines", m, { powerState: "Stopped" })],
    ["Restart it", `kubectl patch ${target("machines", m)} --type merge -p "{\\"spec\\":{\\"restartToken\\":\\"$(date +%s)\\"}}"`],
    protect("machines", m, spec),
  ],
  networks: (n, spec) => [
    ...look("networks", n),
    ["List who holds which address", `kubectl get ipallocations -n ${n.namespace} -l vitistack.io/network-namespace=${n.name}`],
    protect("networks", n, spec),
  ],
  backups: (b) => [...look("backups", b), b.suspended ? ["Resume its snapshots", merge("backups", b, { suspend: false })] : ["Pause its snapshots", merge("backups", b, { suspend: true })]],
  clustertemplates: (t) => [
    ...look("clustertemplates", t),
    t.paused ? ["Continue its rollout", merge("clustertemplates", t, { rollout: { paused: false } })] : ["Pause its rollout", merge("clustertemplates", t, { rollout: { paused: true } })],
    ["List its clusters over REST", curl(`/api/v1/clusters?clusterTemplate=${encodeURIComponent(t.name)}`)],
    ["Clusters that stop it, over REST", curl(`/api/v1/clusters?clusterTemplate=${encodeURIComponent(t.name)}&rollout=Stopped`)],
  ],
  allocations: (a) =>
    a.method === "dhcp"
      ? [
          ["Show what the DHCP server was asked for", `kubectl describe networkconfiguration ${a.holder}${at(a)}`],
          ["Reconcile now", `kubectl annotate networkconfiguration ${a.holder}${at(a)} vitistack.io/reconcile="$(date +%s)" --overwrite`],
          ["Over REST", curl(`/api/v1/allocations/${encodeURIComponent(a.id)}`)],
        ]
      : look("allocations", a),
};

// commandsFor returns the commands for an object: [what it does, command]. spec and status are those of the object, as far as known.
export const commandsFor = (topic, item, spec, status) => (special[topic]?.(item, spec, status) ?? look(topic, item)).filter(Boolean);
