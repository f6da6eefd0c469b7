// The pages of single machines, networks, addresses and machine providers.
import { h, link } from "./dom.js";
import { bytes, moment, plural } from "./format.js";
import { renderAnswer, requestData } from "./api.js";
import { addressMap, addressPlan, rangeTable } from "./addressmap.js";
import { dl, head, missing, section } from "./cluster.js";
import { conditionList, eventList, requestDetails, requestEvents } from "./details.js";
import { commands, commandsFor } from "./commands.js";
import { hostOf } from "./hosts.js";
import { href, to } from "./router.js";
import { addressesOf, all, allocationsOf, find, networkOf } from "./store.js";
import { stateOf } from "./tables.js";
import { assess } from "./advice.js";
import { layers } from "./kinds.js";

const stampOf = (item) => `${item.phase}${item.ready}${item.since}${item.reason}${item.lastUpdated}`;

// conditionsAndEvents describes the conditions of an object, and the events about it and about what else belongs to it.
export function conditionsAndEvents(item, ...others) {
  const object = requestDetails(item);
  return h(
    "div",
    { class: "two", key: "story" },
    section("conditions", "Conditions", renderAnswer(...object, (data) => conditionList(data.conditions))),
    section("events", "Events", eventList([requestEvents(item), object, ...others.filter(Boolean).map(requestDetails)])),
  );
}

const detailOf = (item) => `/api/v1/resources/${item.id}`;

export const machineView = {
  title: ({ args }) => `Machine ${args[1]}`,
  draw({ args: [namespace, name] }) {
    const m = find("machines", namespace, name);
    if (!m) return missing("machines", "machine", namespace, name);
    const answer = requestData(detailOf(m), stampOf(m));
    const vm = m.vm && find("vms", m.namespace, m.vm);
    const host = m.host && hostOf(m);
    const network = networkOf(m);
    return [
      head(m, "machines", [m.role, m.pool, m.operator, m.template && `template ${m.template}`].filter(Boolean)),
      chain(m, network),
      dl([
        ["Cluster", m.cluster && link(href("clusters", [namespace, m.cluster]), m.cluster)],
        ["Addresses", m.addresses.join(", ") || "none yet"],
        ["Virtual machine", m.vm || "none yet"],
        ["Hypervisor node", host ? link(to("hosts", host), m.host) : m.host || "none yet"],
        ["Provider", m.provider && link(href("providers", [m.provider]), m.provider)],
        ["CPUs", m.cpus],
        ["Memory", bytes(m.memoryBytes)],
        ["Disk", bytes(m.diskBytes)],
        ["Power", m.powerState],
      ]),
      conditionsAndEvents(m, vm),
      section(
        "commands",
        "Commands",
        commands(commandsFor("machines", m, answer.data?.spec)),
      ),
    ];
  },
};

// chain shows where in the layers a machine stands.
function chain(m, network) {
  const addresses = addressesOf().get(`${m.namespace}/${m.name}`) ?? [];
  const cluster = m.cluster && find("clusters", m.namespace, m.cluster);
  const steps = [
    ["networks", network],
    ["addresses", addresses[0]],
    ["machines", m],
    ["clusters", cluster],
  ];
  return h(
    "ol",
    { class: "chain plain", "aria-label": "Where it stands in the layers" },
    steps
      .filter(([topic, item]) => item || topic !== "clusters")
      .map(([topic, item], n) =>
        h(
          "li",
          { key: topic, class: item ? assess(item).state : "idle" },
          h("span", { class: "soft small" }, `${n + 1} ${layers[n].name}`),
          item
            ? [link(topic === "addresses" ? href("addresses", [], { q: m.name }) : to(topic, item), item.name), stateOf(item)]
            : h("span", { class: "soft" }, "none yet"),
        ),
      ),
  );
}

export const networkView = {
  title: ({ args }) => `Network ${args[1]}`,
  draw({ args: [namespace, name] }) {
    const n = find("networks", namespace, name);
    if (!n) return missing("networks", "network", namespace, name);
    const path = detailOf(n);
    const answer = requestData(path, stampOf(n));
    return [
      head(n, "networks", [n.ipv4Prefix, n.ipv6Prefix, n.vlanId ? `VLAN ${n.vlanId}` : n.ready && "untagged"].filter(Boolean)),
      dl([
        ["Gateway", [n.ipv4Gateway, n.ipv6Gateway].filter(Boolean).join(", ") || "none"],
        ["Source", n.provider],
        ["Address allocator", n.allocation],
        ["Datacenter", n.datacenter],
        ["In use", n.addresses && `${n.addresses.allocated.toLocaleString("en")} of ${n.addresses.total.toLocaleString("en")}`],
        ["Free", n.addresses && n.addresses.free.toLocaleString("en")],
      ]),
      section(
        "map",
        "Addresses",
        renderAnswer(path, answer, (data) => maps(n, data.spec)),
        h("p", {}, link(href("addresses", [], { network: n.name, ns: n.namespace }), "All its addresses as a table")),
      ),
      section("users", "Used by", users(n)),
      conditionsAndEvents(n),
      section(
        "commands",
        "Commands",
        commands(commandsFor("networks", n, answer.data?.spec)),
      ),
    ];
  },
};

function maps(n, spec) {
  const allocations = allocationsOf().get(`${n.namespace}/${n.name}`) ?? [];
  const byName = new Map(allocations.map((a) => [a.holder || a.name, a]));
  const linkOf = (holder) => {
    const a = byName.get(holder);
    return a ? link(to("allocations", a), holder) : holder;
  };
  const plans = [false, true].map((v6) => [v6, addressPlan(n, spec, allocations, v6)]).filter(([, p]) => p);
  if (plans.length === 0) return h("p", { class: "empty" }, "No prefix yet. The address map appears once the provider has provisioned the segment.");
  return plans.map(([v6, p]) =>
    h(
      "div",
      { key: v6 ? 6 : 4 },
      plans.length > 1 && h("h3", {}, v6 ? `IPv6: ${n.ipv6Prefix}` : `IPv4: ${n.ipv4Prefix}`),
      addressMap(p),
      h("details", {}, h("summary", {}, "The same as a list"), rangeTable(p, linkOf)),
    ),
  );
}

function users(n) {
  const clusters = all("clusters").filter((c) => networkOf(c) === n);
  const machines = all("addresses").filter((a) => networkOf(a) === n);
  if (clusters.length + machines.length === 0) return h("p", { class: "empty" }, "None yet.");
  return h(
    "ul",
    { class: "plain" },
    clusters.map((c) => h("li", { key: c.id }, link(to("clusters", c), c.name), " ", stateOf(c))),
    h("li", { key: "machines" }, link(href("machines", [], { ns: n.namespace }), plural(machines.length, "interface configuration"))),
  );
}

export const addressView = {
  title: ({ args }) => `Address ${args[1]}`,
  draw({ args: [namespace, name] }) {
    const a = find("allocations", namespace, name);
    if (!a) return missing("addresses", "address", namespace, name);
    const configuration = find("addresses", namespace, a.holder);
    const machine =
      find("machines", namespace, a.holder) ??
      all("addresses")
        .filter((x) => x.namespace === namespace && x.name === a.holder && x.machine)
        .map((x) => find("machines", namespace, x.machine))[0];
    return [
      head(a, "addresses", [a.address, a.family, a.method].filter(Boolean)),
      dl([
        ["Address", a.address || "none yet"],
        ["Asked for", a.requestedAddress],
        ["Network", link(href("networks", [namespace, a.network]), a.network)],
        ["Held by", a.holder || (a.cluster ? "" : "none: it is reserved")],
        ["Virtual address of", a.cluster && !a.holder && link(href("clusters", [namespace, a.cluster]), a.cluster)],
        ["Machine", machine && link(to("machines", machine), machine.name)],
        ["Interface", a.interface],
        ["Expires", a.expiresAt && moment(a.expiresAt)],
      ]),
      a.method === "static" ? conditionsAndEvents(a) : configuration && conditionsAndEvents(configuration),
      section(
        "commands",
        "Commands",
        commands(commandsFor("allocations", a)),
      ),
    ];
  },
};

export const providerView = {
  title: ({ args }) => `Machine provider ${args[0]}`,
  draw({ args: [name] }) {
    const p = find("providers", "", name);
    if (!p) return missing("hosts", "machine provider", name);
    return [
      head(p, "providers", [p.type, p.version, p.default && "default"].filter(Boolean)),
      dl([
        ["Endpoint", p.endpoint],
        ["Machines", link(href("machines", [], { q: p.name }), p.machines)],
        ["Hosts", p.hosts],
        ["CPUs", p.cpus],
        ["Memory", p.memoryBytes && `${bytes(p.memoryBytes)} (${bytes(p.memoryFreeBytes ?? 0)} free)`],
      ]),
      conditionsAndEvents(p),
      section("commands", "Commands", commands(commandsFor("providers", p))),
    ];
  },
};

export const backupView = {
  title: ({ args }) => `Backup ${args[1]}`,
  draw({ args: [namespace, name] }) {
    const b = find("backups", namespace, name);
    if (!b) return missing("backups", "etcd backup", namespace, name);
    return [
      head(b, "backups", [b.schedule || "once", b.storage].filter(Boolean)),
      dl([
        ["Cluster", link(href("clusters", [namespace, b.cluster]), b.cluster)],
        ["Newest snapshot", b.lastSuccess ? moment(b.lastSuccess) : "none yet"],
        ["Next snapshot", b.suspended ? "none: it is suspended" : b.next ? moment(b.next) : "none is due"],
        ["Snapshots", `${b.snapshots} of at most ${b.retention}`],
        ["Size of the newest", b.size],
      ]),
      conditionsAndEvents(b),
      section("commands", "Commands", commands(commandsFor("backups", b))),
    ];
  },
};
