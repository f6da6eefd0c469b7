// The tables of clusters, machines, networks and addresses.
import { badge, h, link } from "./dom.js";
import { age, bytes, count, percent, plural } from "./format.js";
import { exportCSV, filters, grid, select } from "./grid.js";
import { href, to } from "./router.js";
import { all } from "./store.js";
import { sinceOf } from "./causes.js";
import { assess, pauseOf } from "./advice.js";
import { nounOf } from "./kinds.js";
import { humanize } from "./texts.js";

const stateBadge = (item, ...more) => badge(assess(item).state, [item.phase || item.status, ...more].join(", "));

export const stateOf = (item) => (pauseOf(item) ? stateBadge(item, "paused") : stateBadge(item));

// stateOfRollout maps the states of a cluster in a rollout to those of badges.
const stateOfRollout = { New: "wait", Waiting: "wait", Paused: "idle", Updating: "wait", Stopped: "bad", Current: "good" };

// rolloutBadge says where a cluster is in the rollout of the ClusterTemplate that it names.
export const rolloutBadge = ({ state }) => (state ? badge(stateOfRollout[state] ?? "wait", state) : badge("act", "not found"));

// why says what an item waits for, and that it is paused: the column of phases is too narrow for that.
const why = (item) => [humanize(pauseOf(item)?.reason), ...(item.ready ? [] : [humanize(item.reason), item.message])].filter(Boolean).join(": ");

const named = (key, title, more) => ({ key, title, value: (i) => i[key] ?? "", ...more });
const name = { key: "name", title: "Name", value: (i) => i.name, width: "16rem" };
const namespace = named("namespace", "Namespace", { width: "8rem", least: 60 });
const phase = { key: "phase", title: "State", value: (i) => i.phase, cell: (i) => stateBadge(i), width: "9.25rem" };
const reason = { key: "reason", title: "Waits for", value: why, least: 75 };
const ageOf = {
  key: "age",
  title: "Age",
  value: (i) => -Date.parse(i.createdAt ?? 0),
  cell: (i) => age(i.createdAt),
  csv: (i) => i.createdAt,
  width: "5rem",
  number: true,
  least: 40,
};
const inCluster = (i) => i.cluster && link(href("clusters", [i.namespace, i.cluster]), i.cluster, { tabindex: "-1" });
const status = { key: "state", title: "State", value: (i) => i.phase };
const inNamespace = { key: "ns", title: "Namespace", value: (i) => i.namespace };

const tables = {
  clusters: {
    title: "Clusters",
    columns: [
      name,
      namespace,
      phase,
      {
        key: "nodes",
        title: "Nodes ready",
        value: (i) => i.nodes.ready / Math.max(1, i.nodes.total),
        cell: (i) => `${i.nodes.ready} of ${i.nodes.total}`,
        csv: (i) => `${i.nodes.ready}/${i.nodes.total}`,
        width: "8rem",
        number: true,
        least: 34,
      },
      named("version", "Kubernetes", { width: "8rem", least: 50 }),
      named("talosVersion", "Talos", { width: "6rem", least: 80 }),
      { key: "template", title: "Template", value: (i) => i.clusterTemplate?.name ?? "", width: "8rem", least: 115 },
      named("endpoint", "Endpoint", { width: "14rem", least: 120 }),
      named("environment", "Environment", { width: "8.5rem", least: 90 }),
      named("datacenter", "Datacenter", { width: "8rem", least: 110 }),
      reason,
      ageOf,
    ],
    facets: [
      status,
      inNamespace,
      { key: "env", title: "Environment", value: (i) => i.environment },
      { key: "version", title: "Kubernetes", value: (i) => i.version },
      { key: "template", title: "Template", value: (i) => i.clusterTemplate?.name },
    ],
    none: ["No clusters yet.", "Apply a KubernetesCluster: apis/examples/simple-kubernetescluster.yaml is one to start from."],
  },
  clustertemplates: {
    title: "Cluster templates",
    columns: [
      name,
      phase,
      named("version", "Kubernetes", { width: "8rem", least: 50 }),
      named("talosVersion", "Talos", { width: "6rem", least: 80 }),
      named("clusters", "Clusters", { width: "6rem", number: true }),
      named("currentClusters", "Current", { width: "6rem", number: true, least: 34 }),
      named("updatingClusters", "Updating", { width: "6.5rem", number: true, least: 60 }),
      named("waitingClusters", "Waiting", { width: "6rem", number: true, least: 45 }),
      named("wave", "Wave", { width: "7rem", least: 70 }),
      reason,
      ageOf,
    ],
    facets: [status, { key: "version", title: "Kubernetes", value: (i) => i.version }],
    none: ["No cluster templates yet.", "Apply a ClusterTemplate for what your clusters have in common: apis/examples/clustertemplate.yaml is one to start from."],
  },
  backups: {
    title: "Backups",
    columns: [
      name,
      namespace,
      phase,
      { key: "cluster", title: "Cluster", value: (i) => i.cluster, cell: inCluster, hint: (i) => i.cluster, width: "10rem", least: 34 },
      {
        key: "last",
        title: "Newest snapshot",
        value: (i) => -Date.parse(i.lastSuccess ?? 0),
        cell: (i) => (i.lastSuccess ? `${age(i.lastSuccess)} ago` : "none yet"),
        csv: (i) => i.lastSuccess,
        width: "10.5rem",
        number: true,
        least: 45,
      },
      named("snapshots", "Snapshots", { width: "7rem", number: true, least: 60 }),
      named("size", "Size", { width: "7rem", least: 80 }),
      { key: "schedule", title: "Schedule", value: (i) => i.schedule || "once", width: "9rem", least: 70 },
      named("storage", "Storage", { width: "7rem", least: 95 }),
      reason,
      ageOf,
    ],
    facets: [status, inNamespace, { key: "cluster", title: "Cluster", value: (i) => i.cluster }],
    none: ["No backups yet.", "Apply an EtcdBackup for each cluster that you cannot lose: apis/examples/etcdbackup.yaml is one to start from."],
  },
  machines: {
    title: "Machines",
    columns: [
      name,
      namespace,
      phase,
      { key: "cluster", title: "Cluster", value: (i) => i.cluster ?? "", cell: inCluster, hint: (i) => i.cluster, width: "9rem", least: 45 },
      { key: "role", title: "Role", value: (i) => i.pool || i.role || "", width: "8.5rem", least: 65 },
      { key: "address", title: "Address", value: (i) => i.addresses[0] ?? "", csv: (i) => i.addresses, width: "10rem", least: 34 },
      named("host", "Hypervisor", { width: "9rem", least: 55 }),
      { key: "cpus", title: "CPUs", value: (i) => i.cpus, width: "4.5rem", number: true, least: 105 },
      {
        key: "memory",
        title: "Memory",
        value: (i) => i.memoryBytes,
        cell: (i) => bytes(i.memoryBytes),
        width: "6rem",
        number: true,
        least: 105,
      },
      { key: "disk", title: "Disk", value: (i) => i.diskBytes, cell: (i) => bytes(i.diskBytes), width: "6rem", number: true, least: 130 },
      reason,
      ageOf,
    ],
    facets: [
      status,
      inNamespace,
      { key: "cluster", title: "Cluster", value: (i) => i.cluster },
      { key: "host", title: "Hypervisor", value: (i) => i.host },
      { key: "operator", title: "Kind", value: (i) => i.operator },
      { key: "template", title: "Template", value: (i) => i.template },
    ],
    none: [
      "No machines yet.",
      "Apply a Machine, or a KubernetesCluster that brings its own: apis/examples/basic-vm.yaml is one to start from.",
    ],
  },
  networks: {
    title: "Networks",
    columns: [
      name,
      namespace,
      phase,
      { key: "prefix", title: "Prefix", value: (i) => [i.ipv4Prefix, i.ipv6Prefix].filter(Boolean).join(" "), width: "11rem", least: 34 },
      { key: "vlan", title: "VLAN", value: (i) => i.vlanId || "", width: "5rem", number: true, least: 55 },
      {
        key: "used",
        title: "In use",
        value: (i) => (i.addresses ? i.addresses.allocated / Math.max(1, i.addresses.total) : -1),
        cell: usage,
        csv: (i) => i.addresses?.allocated,
        width: "11rem",
        least: 50,
      },
      {
        key: "free",
        title: "Free",
        value: (i) => i.addresses?.free ?? "",
        cell: (i) => (i.addresses ? count(i.addresses.free) : ""),
        width: "6rem",
        number: true,
        least: 85,
      },
      named("allocation", "Allocator", { width: "8.5rem", least: 95 }),
      named("provider", "Source", { width: "6rem", least: 105 }),
      named("datacenter", "Datacenter", { width: "8rem", least: 115 }),
      reason,
      ageOf,
    ],
    facets: [
      status,
      inNamespace,
      { key: "source", title: "Source", value: (i) => i.provider },
      { key: "by", title: "Allocator", value: (i) => i.allocation },
    ],
    none: ["No networks yet.", "Everything begins with one: apply a NetworkNamespace, such as apis/examples/tour-network.yaml."],
  },
  addresses: {
    title: "Addresses",
    topic: "allocations",
    columns: [
      {
        key: "address",
        title: "Address",
        value: (i) => i.address || i.requestedAddress || "",
        cell: (i) => i.address || (i.requestedAddress ? `wants ${i.requestedAddress}` : "none yet"),
        width: "12rem",
      },
      phase,
      { key: "holder", title: "Held by", value: (i) => i.holder || `${i.name} (reserved)`, width: "15rem", least: 34 },
      named("interface", "Interface", { width: "7rem", least: 80 }),
      {
        key: "network",
        title: "Network",
        value: (i) => i.network,
        cell: (i) => link(href("networks", [i.namespace, i.network]), i.network, { tabindex: "-1" }),
        hint: (i) => i.network,
        width: "12rem",
        least: 50,
      },
      namespace,
      named("method", "Allocator", { width: "8.5rem", least: 90 }),
      named("family", "Family", { width: "5rem", least: 100 }),
      reason,
      ageOf,
    ],
    facets: [
      status,
      inNamespace,
      { key: "network", title: "Network", value: (i) => i.network },
      { key: "method", title: "Allocator", value: (i) => i.method },
      { key: "family", title: "Family", value: (i) => i.family },
    ],
    none: ["No addresses yet.", "A Machine gets one by itself as soon as its namespace has a network that is ready."],
  },
};

function usage(i) {
  if (!i.addresses) return h("span", { class: "soft" }, "not counted");
  const part = percent(i.addresses.allocated, i.addresses.total);
  return h(
    "span",
    { class: "usage" },
    bar([[part, part >= 95 ? "bad" : part >= 80 ? "act" : "fill"]]),
    `${count(i.addresses.allocated)} of ${count(i.addresses.total)}`,
  );
}

// bar shows parts of a whole, each [percent, class]. The text beside it says the
// same.
export const bar = (parts, shape = "") =>
  h(
    "span",
    { class: `bar ${shape}`, "aria-hidden": "true" },
    parts.map(([part, kind], n) => h("span", { key: n, class: kind, style: { width: `${Math.min(100, part)}%` } })),
  );

export function table(view) {
  const t = tables[view];
  const topic = t.topic ?? view;
  return {
    title: () => t.title,
    draw({ query }) {
      const rows = all(topic);
      const found = select(rows, t.columns, t.facets, query);
      const [none, todo] = t.none;
      const empty =
        rows.length === 0
          ? [h("p", { class: "lead" }, none), h("p", {}, todo)]
          : [
              h("p", { class: "lead" }, `No ${nounOf[topic]} matches.`),
              h("p", {}, "Change the search, or press Clear to see all."),
            ];
      return [
        h("h1", { tabindex: "-1" }, t.title, " ", h("small", {}, count(rows.length))),
        h(
          "div",
          { class: "wide" },
          filters({
            label: t.title,
            rows,
            found: found.length,
            facets: t.facets,
            query,
            onexport: () => exportCSV(view, exported(t.columns), found),
          }),
          grid({
            id: `grid-${view}`,
            caption: `${t.title}: ${plural(found.length, "row")}. The arrow keys move between rows, Enter opens one.`,
            columns: t.columns,
            rows: found,
            query,
            hrefOf: (i) => to(topic, i),
            empty,
          }),
        ),
      ];
    },
  };
}

// exported has every column, and what the table shows in words.
const exported = (columns) => [
  ...columns,
  { key: "id", title: "ID", value: (i) => i.id },
  { key: "since", title: "Since", value: sinceOf },
];
