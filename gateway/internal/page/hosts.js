// The hypervisor nodes: what runs on them, what they have, and what is asked of
// them.
import { badge, h, link } from "./dom.js";
import { bytes, cores, count, percent, plural } from "./format.js";
import { searchForm } from "./grid.js";
import { href, setQuery, to } from "./router.js";
import { machineClassTable } from "./machineclasses.js";
import { all, derive, hasJustChanged, machinesOn, vmsOn } from "./store.js";
import { bar, stateOf } from "./tables.js";
import { onNoNode, usage } from "./usage.js";

// perCore is how many virtual CPUs a core may carry. Memory is not shared out twice.
export const perCore = 3;

const poolOf = (host) => host.provider || host.type;
const hostsIn = derive(["hosts"], () => Map.groupBy(all("hosts"), poolOf));

// capacity says, for each pool of nodes that can stand in for one another, how many
// of them may fail, the largest first, before CPU or memory is short.
export const capacity = derive(["hosts"], () =>
  [...hostsIn()].map(([name, hosts]) => {
    const up = hosts.filter((x) => x.schedulable);
    const left = (of, share) => {
      const demand = hosts.reduce((sum, x) => sum + of(x).requested, 0);
      const sizes = up.map((x) => of(x).allocatable * share).sort((a, b) => b - a);
      let room = sizes.reduce((a, b) => a + b, 0);
      let failing = 0;
      while (failing < sizes.length - 1 && room - sizes[failing] >= demand) room -= sizes[failing++];
      return room < demand ? -1 : failing;
    };
    const cpu = left((x) => x.milliCpus, perCore);
    const memory = left((x) => x.memoryBytes, 1);
    return {
      name,
      type: hosts[0].type,
      hosts: hosts.length,
      up: up.length,
      may: Math.min(cpu, memory),
      short: memory <= cpu ? "memory" : "CPU",
    };
  }),
);

export function mayFail(c) {
  if (c.up === 0) return "No node takes machines.";
  if (c.may < 0) return `${c.short} is already insufficient.`;
  return c.may === 0 ? `Cannot lose a node: ${c.short} would be insufficient.` : `Can lose ${plural(c.may, "node")}.`;
}

// running is the machines of a node: those of the stack, and what else its
// hypervisor runs.
function running(host) {
  if (host.local) return (vmsOn().get(host.name) ?? []).map((v) => ({ ...v, topic: "vms" }));
  return (machinesOn().get(`${host.provider}/${host.name}`) ?? []).map((m) => ({ ...m, topic: "machines" }));
}

const metersOf = (host) => [
  {
    name: "CPU",
    q: host.milliCpus,
    of: (m) => m.cpus * 1000,
    show: cores,
    share: perCore,
    whole: (n) => `${cores(n)} cores, ${perCore} virtual CPUs each`,
    measured: (q) => `${cores(q.used)} of ${cores(q.total)} cores busy`,
  },
  {
    name: "Memory",
    q: host.memoryBytes,
    of: (m) => m.memoryBytes,
    show: bytes,
    share: 1,
    whole: (n) => `${bytes(n)} in the node`,
    measured: (q) => `${bytes(q.used)} of ${bytes(q.total)} used`,
  },
];

// meter shows what running machines have, what all machines of the node ask for, and
// what it has for them; below it what the hypervisor measures, where it does.
function meter({ name, q, of, show, share, whole, measured }, machines) {
  const room = q.allocatable * share;
  const running = machines.filter((m) => m.status === "running").reduce((sum, m) => sum + of(m), 0);
  const part = percent(q.requested, room);
  const kind = part > 100 ? "bad" : part >= 85 ? "act" : "fill";
  return h(
    "div",
    { class: "meter", key: name },
    h("div", { class: "row" }, h("span", {}, name), h("span", { class: "soft" }, `${part} %`)),
    bar([
      [percent(Math.min(running, q.requested), room), kind],
      [percent(Math.max(0, q.requested - running), room), `${kind} faint`],
    ]),
    h(
      "p",
      { class: "soft small", title: whole(q.total) },
      `${show(running)} running · ${show(q.requested)} requested · ${show(room)} allocatable`,
    ),
    q.used !== undefined && bar([[percent(q.used, q.total), q.used >= 0.9 * q.total ? "bad" : "fill"]], "thin"),
    q.used !== undefined && h("p", { class: "soft small" }, `${measured(q)} · ${percent(q.used, q.total)} %`),
  );
}

const mostShown = 12;
// mostHosts bounds the nodes of a pool that are drawn: each takes about thirty elements.
const mostHosts = 100;

function card(host) {
  const machines = running(host).sort((a, b) => Number(a.ready) - Number(b.ready) || a.name.localeCompare(b.name));
  return h(
    "li",
    { key: host.id, class: `card ${hasJustChanged(host.id) ? "fresh" : ""}`, id: host.name },
    h("div", { class: "row" }, h("h3", {}, host.name), stateOf(host)),
    h(
      "p",
      { class: "soft small" },
      [host.provider || "this cluster", host.version, host.controlPlane && "control plane", !host.schedulable && host.ready && "cordoned"]
        .filter(Boolean)
        .join(" · "),
    ),
    metersOf(host).map((m) => meter(m, machines)),
    h("h4", {}, machines.length === 0 ? "No virtual machines" : plural(machines.length, "virtual machine")),
    machines.length > 0 &&
      h(
        "ul",
        { class: "chips" },
        machines.slice(0, mostShown).map((m) => h("li", { key: m.id }, chip(m))),
        machines.length > mostShown &&
          h("li", { key: "more" }, link(href("machines", [], { host: host.name }), `and ${count(machines.length - mostShown)} more`)),
      ),
  );
}

// chip is a machine on its node, with its cluster.
function chip(m) {
  const machine =
    m.topic === "machines" ? m : all("machines").find((x) => x.namespace === m.namespace && (x.vm === m.name || x.name === m.machine));
  const cluster = (machine ?? m).cluster;
  const text = [`${m.namespace}/${m.name}`, cluster && `cluster ${cluster}`, m.phase, `${m.cpus} CPUs`, bytes(m.memoryBytes)].filter(Boolean).join(", ");
  const state = m.ready ? "good" : m.status === "failed" ? "bad" : "wait";
  const content = [m.name, cluster && h("span", { class: "soft" }, ` ${cluster}`)];
  return machine
    ? link(to("machines", machine), content, { class: `chip ${state}`, title: text })
    : h("span", { class: `chip ${state}`, title: text }, content);
}

export const hostsView = {
  title: () => "Hypervisors",
  draw({ query }) {
    const wanted = (query.get("q") ?? "").toLowerCase();
    const order = query.get("sort") ?? "load";
    const load = (x) => Math.max(...metersOf(x).map(({ q, share }) => q.requested / Math.max(1, q.allocatable * share)));
    const sorts = {
      load: (a, b) => load(b) - load(a),
      name: (a, b) => a.name.localeCompare(b.name, "en", { numeric: true }),
      machines: (a, b) => b.vms - a.vms,
    };
    const groups = [...hostsIn()].sort(([a], [b]) => a.localeCompare(b));
    const hosts = all("hosts");
    if (hosts.length === 0)
      return [
        h("h1", { tabindex: "-1" }, "Hypervisors"),
        h(
          "div",
          { class: "empty" },
          h("p", { class: "lead" }, "No hypervisor nodes are known."),
          h(
            "p",
            {},
            "Nodes of KubeVirt come from the Kubernetes API, those of Proxmox VE from a MachineProvider: apply one, and look at its condition Ready.",
          ),
          providers(),
        ),
        onNoNode("", query.get("sums") === "all"),
        usage(query),
        machineClassTable(),
      ];
    return [
      h("h1", { tabindex: "-1" }, "Hypervisors ", h("small", {}, count(hosts.length))),
      searchForm(
        "Hypervisors",
        "node, machine or cluster",
        query,
        h(
          "label",
          { class: "field" },
          h("span", {}, "Order"),
          h(
            "select",
            { value: order, onchange: (e) => setQuery({ sort: e.target.value }) },
            h("option", { value: "load" }, "fullest first"),
            h("option", { value: "name" }, "by name"),
            h("option", { value: "machines" }, "most machines first"),
          ),
        ),
      ),
      providers(),
      groups.map(([name, members]) => {
        const c = capacity().find((x) => x.name === name);
        const shown = members
          .filter((x) => !wanted || x.name.toLowerCase().includes(wanted) || running(x).some((m) => `${m.name} ${m.cluster ?? ""}`.toLowerCase().includes(wanted)))
          .sort(sorts[order] ?? sorts.load);
        return h(
          "section",
          { key: name, "aria-labelledby": `pool-${name}` },
          h(
            "h2",
            { id: `pool-${name}` },
            kinds[c.type] ?? c.type,
            name === c.type ? "" : `: ${name}`,
            " ",
            h("small", {}, `${c.up} of ${plural(c.hosts, "node")} take machines`),
          ),
          h(
            "p",
            { class: "soft" },
            badge(c.may > 0 ? "good" : c.may === 0 ? "act" : "bad", mayFail(c)),
            ` Counted with ${perCore} virtual CPUs for each core, the largest nodes failing first. Running is what running machines have, requested what all of them ask for. `,
            members.some((x) => x.milliCpus.used !== undefined)
              ? "Busy and used is what the hypervisor measures."
              : c.type === "kubevirt" && "What the nodes use is not measured: install metrics-server in their cluster.",
          ),
          shown.length === 0
            ? h("p", { class: "soft" }, "No matching nodes or machines.")
            : h("ul", { class: "cards" }, shown.slice(0, mostHosts).map(card)),
          shown.length > mostHosts &&
            h("p", { class: "soft" }, `${count(mostHosts)} of ${count(shown.length)} nodes are shown. Search for a node, a machine or a cluster to find others.`),
        );
      }),
      onNoNode(wanted, query.get("sums") === "all"),
      usage(query),
      machineClassTable(),
    ];
  },
};

const kinds = { kubevirt: "KubeVirt", proxmox: "Proxmox VE" };

function providers() {
  const found = all("providers");
  if (found.length === 0) return null;
  return h(
    "section",
    { key: "providers", "aria-labelledby": "providers-title" },
    h("h2", { id: "providers-title" }, "Machine providers"),
    h(
      "ul",
      { class: "plain facts-list" },
      found.map((p) =>
        h(
          "li",
          { key: p.id },
          link(to("providers", p), p.name),
          " ",
          stateOf(p),
          " ",
          h(
            "span",
            { class: "soft" },
            [kinds[p.type] ?? p.type, p.version, p.default && "default", plural(p.machines, "machine"), p.endpoint, !p.ready && p.message]
              .filter(Boolean)
              .join(" · "),
          ),
        ),
      ),
    ),
  );
}

// hostOf is the node that a machine is on.
export function hostOf(machine) {
  const named = all("hosts").filter((x) => x.name === machine.host);
  return named.find((x) => x.provider === machine.provider) ?? named[0];
}
