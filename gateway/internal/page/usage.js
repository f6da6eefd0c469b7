// What clusters and namespaces use: the CPU, memory and storage that their machines have, and the machines that are on no node.
import { h, link } from "./dom.js";
import { bytes, count, plural } from "./format.js";
import { href, to } from "./router.js";
import { all, derive, find } from "./store.js";
import { stateOf } from "./tables.js";
import { humanize } from "./texts.js";

const mostShown = 15;

// sums adds up machines by what a function says of each: {key, machines, running, cpus, memory, disk}, the largest memory first.
function sums(machines, keyOf) {
  const groups = new Map();
  for (const m of machines) {
    const key = keyOf(m);
    if (!key) continue;
    const sum = groups.get(key) ?? { key, machines: 0, running: 0, cpus: 0, memory: 0, disk: 0 };
    sum.machines++;
    if (m.ready) sum.running++;
    sum.cpus += m.cpus;
    sum.memory += m.memoryBytes;
    sum.disk += m.diskBytes;
    groups.set(key, sum);
  }
  return [...groups.values()].sort((a, b) => b.memory - a.memory || a.key.localeCompare(b.key));
}

const byCluster = derive(["machines"], () => sums(all("machines"), (m) => m.cluster && `${m.namespace}/${m.cluster}`));
const byNamespace = derive(["machines"], () => sums(all("machines"), (m) => m.namespace));

// sumOf adds up the machines of a cluster.
export const sumOf = (cluster) => byCluster().find((s) => s.key === `${cluster.namespace}/${cluster.name}`);

function table(id, title, rows, linkOf, everything, more) {
  const shown = everything ? rows : rows.slice(0, mostShown);
  return h(
    "section",
    { key: id, "aria-labelledby": `${id}-title` },
    h("h2", { id: `${id}-title` }, title),
    h(
      "div",
      { class: "scroll", role: "region", tabindex: "0", "aria-label": `${title}, can be scrolled` },
      h(
        "table",
        { class: "lines sums" },
        h("caption", { class: "quiet" }, title),
        h("thead", {}, h("tr", {}, ["Name", "Machines", "CPUs", "Memory", "Storage"].map((t, n) => h("th", { key: t, scope: "col", class: n ? "number" : "" }, t)))),
        h(
          "tbody",
          {},
          shown.map((s) =>
            h(
              "tr",
              { key: s.key },
              h("th", { scope: "row" }, linkOf(s)),
              h("td", { class: "number" }, s.running === s.machines ? count(s.machines) : `${count(s.running)} of ${count(s.machines)} ready`),
              h("td", { class: "number" }, count(s.cpus)),
              h("td", { class: "number" }, bytes(s.memory)),
              h("td", { class: "number" }, bytes(s.disk)),
            ),
          ),
        ),
      ),
    ),
    shown.length < rows.length && h("p", {}, link(more, `Show all ${count(rows.length)}`)),
  );
}

// usage describes what the machines of each cluster and of each namespace have.
export function usage(query) {
  if (all("machines").length === 0) return null;
  const everything = query.get("sums") === "all";
  const more = href("hosts", [], { ...Object.fromEntries(query), sums: "all" });
  const clusterLink = (s) => {
    const [namespace, name] = s.key.split("/");
    return link(find("clusters", namespace, name) ? href("clusters", [namespace, name]) : href("machines", [], { ns: namespace, cluster: name }), s.key);
  };
  return h(
    "div",
    { class: "two", key: "usage" },
    table("by-cluster", "Machines by cluster", byCluster(), clusterLink, everything, more),
    table("by-namespace", "Machines by namespace", byNamespace(), (s) => link(href("machines", [], { ns: s.key }), s.key), everything, more),
  );
}

// homeless are the machines and the virtual machines of this cluster that are on no node: halted, unschedulable, being created, or
// foreign to the stack. A virtual machine of a Machine is listed as the Machine.
const homeless = derive(["machines", "vms"], () => {
  const machines = all("machines").filter((m) => !m.host);
  const known = new Set(all("machines").flatMap((m) => [`${m.namespace}/${m.name}`, `${m.namespace}/${m.vm ?? ""}`]));
  const foreign = all("vms").filter((v) => !v.host && !known.has(`${v.namespace}/${v.machine || v.name}`) && !known.has(`${v.namespace}/${v.name}`));
  return [...machines.map((item) => ({ item, topic: "machines" })), ...foreign.map((item) => ({ item, topic: "vms" }))];
});

// onNoNode describes what is on no node and matches a text.
export function onNoNode(wanted, everything) {
  const found = homeless().filter(({ item }) => !wanted || `${item.namespace}/${item.name} ${item.cluster ?? ""}`.toLowerCase().includes(wanted));
  if (found.length === 0) return null;
  const shown = everything ? found : found.slice(0, mostShown);
  return h(
    "section",
    { key: "no-node", "aria-labelledby": "no-node-title" },
    h("h2", { id: "no-node-title" }, "On no node ", h("small", {}, plural(found.length, "machine"))),
    h(
      "ul",
      { class: "plain facts-list" },
      shown.map(({ item, topic }) =>
        h(
          "li",
          { key: item.id },
          topic === "vms" ? h("strong", {}, `${item.namespace}/${item.name}`) : link(to(topic, item), `${item.namespace}/${item.name}`),
          " ",
          stateOf(item),
          " ",
          h(
            "span",
            { class: "soft" },
            [
              topic === "vms" && (item.machine ? `its Machine ${item.machine} does not exist` : "no Machine of the stack"),
              item.cluster && `cluster ${item.cluster}`,
              item.provider,
              plural(item.cpus, "CPU"),
              bytes(item.memoryBytes),
              !item.ready && [humanize(item.reason), item.message].filter(Boolean).join(": "),
            ]
              .filter(Boolean)
              .join(" · "),
          ),
        ),
      ),
    ),
    shown.length < found.length && h("p", {}, link(href("hosts", [], { sums: "all" }), `Show all ${count(found.length)}`)),
  );
}
