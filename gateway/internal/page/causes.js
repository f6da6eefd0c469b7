// Which object is the cause of another that is not ready: the page follows the same rules as apis/cause.
import { addressesOf, all, allocationsOf, clustersOf, find, group, machinesOf, networkOf } from "./store.js";
import { maxWait } from "./reasons.js";
import { since } from "./format.js";
import { assess, assessOverdue, waitsFor } from "./advice.js";
import { kindOf } from "./kinds.js";

export const sinceOf = (item) => item.since ?? item.createdAt ?? item.lastUpdated;

// isOverdue reports whether an item has waited for too long. A rollout of a cluster template may last for days.
export const isOverdue = (item) => item.topic !== "clustertemplates" && since(sinceOf(item)) > maxWait;

const allocationsFor = group("allocations", (a) => a.method === "static" && a.holder && `${a.namespace}/${a.holder}`);
const virtualAddressesOf = group("allocations", (a) => !a.holder && a.cluster && `${a.namespace}/${a.cluster}`);

const of = (topic, items = []) => items.filter(Boolean).map((item) => ({ item, topic }));
const at = (item) => `${item.namespace ?? ""}/${item.name}`;

// needed returns, by topic, the objects that an item depends on: the ones that it names, and the ones that were created for it.
const needed = {
  clusters: (c) => [...of("networks", [networkOf(c)]), ...of("machines", machinesOf().get(at(c))), ...of("allocations", virtualAddressesOf().get(at(c)))],
  machines: (m) => [
    ...of("addresses", addressesOf().get(at(m))),
    ...of("providers", [m.provider && find("providers", "", m.provider)]),
    ...of("clusters", [m.cluster && find("clusters", m.namespace, m.cluster)]),
  ],
  addresses: (a) => [...of("networks", [networkOf(a)]), ...of("allocations", allocationsFor().get(at(a)))],
  allocations: (a) => of("networks", [networkOf(a)]),
  clustertemplates: (t) => of("clusters", (clustersOf().get(t.name) ?? []).filter((c) => ["Updating", "Stopped"].includes(c.clusterTemplate.state))),
  backups: (b) => of("clusters", [find("clusters", b.namespace, b.cluster)]),
};

// users are the objects in a network: it cannot be deleted before them.
const users = (n) => [
  ...of("clusters", all("clusters").filter((c) => networkOf(c) === n)),
  ...of("addresses", all("addresses").filter((a) => networkOf(a) === n)),
  ...of("allocations", allocationsOf().get(at(n))),
];

// isKept reports whether neither an item nor one that it was created for is being deleted.
const isKept = (item) =>
  ![
    item,
    item.cluster && find("clusters", item.namespace, item.cluster),
    item.machine && find("machines", item.namespace, item.machine),
    item.holder && find("addresses", item.namespace, item.holder),
    item.holder && find("machines", item.namespace, item.holder),
  ].some((x) => x?.deleting);

// judge assesses an item of a topic. One that is being deleted while objects that are not being deleted use it does not proceed until a user
// deletes them.
export function judge(item, topic) {
  const v = assess(item);
  if (!item.deleting || item.reason !== "InUse" || item.condition || !v.waits) return v;
  const kept = topic === "networks" ? users(item).some((u) => isKept(u.item)) : topic === "providers" && all("machines").some((m) => m.provider === item.name && isKept(m));
  return kept ? { ...v, state: "act", who: topic === "providers" ? "platform team" : "requester", waits: false } : v;
}

// backed has, by topic, the objects that the state of a backend or a node follows from.
const backed = {
  hosts: (x) => (x.reason === "Unreachable" ? of("providers", all("providers").filter((p) => p.name === x.provider)) : []),
  operators: (o) => of("providers", all("providers").filter((p) => p.type === o.name)),
};

// names reports whether a message has a name as a word of its own.
function names(message = "", name) {
  if (!message.includes(name)) return false;
  const escaped = name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  return new RegExp(`(^|[^a-zA-Z0-9.-])${escaped}($|[^a-zA-Z0-9-])`).test(message);
}

// waitedFor returns the objects that an item may wait for: all objects of the kinds that its reason names, and the objects that its message
// names.
function waitedFor(item, topic) {
  if (backed[topic]) return backed[topic](item);
  if (item.reason === "InUse" && !judge(item, topic).waits) return [];
  const candidates = needed[topic]?.(item) ?? [];
  if (topic === "networks" && ["InUse", "Deleting"].includes(item.reason)) candidates.push(...users(item));
  const kinds = waitsFor(item, topic);
  return candidates.filter((next) => kinds.includes(kindOf[next.topic]) || names(item.message, `${kindOf[next.topic]} ${next.item.name}`));
}

const needsAction = (chain) => !judge(chain.at(-1).item, chain.at(-1).topic).waits;

// isBetter reports whether a chain explains more than another: its end needs an action, or the message above names its first item.
function isBetter(a, b, message) {
  if (needsAction(a) !== needsAction(b)) return needsAction(a);
  return names(message, a[0].item.name) && !names(message, b[0].item.name);
}

// chainOf returns the items from one that is not ready down to the one that is the cause, each as {item, topic}.
export function chainOf(item, topic, passed = []) {
  let best;
  for (const next of waitedFor(item, topic)) {
    if (next.item.ready || next.item === item || passed.includes(next.item)) continue;
    const chain = chainOf(next.item, next.topic, [...passed, item]);
    if (!best || isBetter(chain, best, item.message)) best = chain;
  }
  return [{ item, topic }, ...(best ?? [])];
}

// explain returns the chain of an item, and the verdict on its end: a role has to act for what has waited for too long.
export function explain(item, topic) {
  const chain = chainOf(item, topic);
  const end = chain.at(-1);
  const own = judge(end.item, end.topic);
  return { chain, end, assessment: !end.item.ready && own.waits && isOverdue(end.item) ? assessOverdue(own, end.topic) : own };
}
