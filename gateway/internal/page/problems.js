// Problems are what needs attention: what has failed, what needs an action,
// and what takes too long. An item that waits for an item with a problem is
// listed under that problem.
import { addressesOf, all, derive, find, machinesOf, networkOf } from "./store.js";
import { maxWait } from "./reasons.js";
import { late, verdict } from "./words.js";
import { since } from "./format.js";

const order = { networks: 1, addresses: 2, machines: 3, clusters: 4, backups: 5, providers: 0, operators: 0, hosts: 0, functions: 0, orphans: 0, backends: 0, dependencies: 0 };
const rank = { bad: 0, act: 1, wait: 2 };

export const sinceOf = (item) => item.since ?? item.createdAt ?? item.lastUpdated;

// troubled reports whether an item has a problem of its own.
function troubled(item) {
  if (item.ready) return false;
  const v = verdict(item);
  if (v.state === "idle") return item.deleting && since(sinceOf(item)) > maxWait;
  return v.state !== "wait" || since(item.createdAt ?? sinceOf(item)) > maxWait;
}

// cause returns the root cause of an item that is not ready: the deepest dependency that is
// not ready.
function cause(item, topic) {
  const below =
    {
      clusters: () =>
        machinesOf()
          .get(`${item.namespace}/${item.name}`)
          ?.map((m) => [m, "machines"]) ?? [],
      machines: () => (addressesOf().get(`${item.namespace}/${item.name}`) ?? []).map((a) => [a, "addresses"]),
      addresses: () => [[networkOf(item), "networks"]],
      backups: () => (item.reason === "ClusterNotReady" ? [[find("clusters", item.namespace, item.cluster), "clusters"]] : []),
      hosts: () =>
        item.reason === "Unreachable" ? all("providers").filter((p) => p.name === item.provider).map((p) => [p, "providers"]) : [],
      operators: () =>
        all("providers")
          .filter((p) => p.type === item.name)
          .map((p) => [p, "providers"]),
    }[topic]?.() ?? [];
  for (const [next, at] of below) if (next && !next.ready && troubled(next)) return cause(next, at);
  return { item, topic };
}

// likeness is equal for problems that are listed together.
const likeness = ({ item, topic }) =>
  [
    topic,
    item.namespace,
    item.cluster ?? "",
    item.network ?? "",
    item.reason,
    topic === "machines" || topic === "addresses" ? "" : item.name,
  ].join("|");

// problems are groups: {state, verdict, topic, items, holds}, the worst first and
// then the oldest.
function gatherAll() {
  const groups = new Map();
  for (const topic of Object.keys(order)) {
    for (const item of all(topic)) {
      if (item.ready) continue;
      const root = cause(item, topic);
      if (root.item === item && !troubled(item)) continue;
      const key = likeness(root);
      if (!groups.has(key)) groups.set(key, { key, topic: root.topic, items: new Map(), holds: new Map() });
      const group = groups.get(key);
      group.items.set(root.item.id, root.item);
      if (root.item !== item) group.holds.set(item.id, { item, topic });
    }
  }
  return [...groups.values()]
    .map(finish)
    .sort((a, b) => rank[a.verdict.state] - rank[b.verdict.state] || a.since.localeCompare(b.since) || a.key.localeCompare(b.key));
}

function finish(group) {
  const items = [...group.items.values()].sort((a, b) => a.name.localeCompare(b.name));
  const first = items[0];
  // What needs no action is here because it has lasted too long.
  const own = verdict(first);
  const v = own.waits ? late(own, group.topic) : own;
  return {
    ...group,
    items,
    first,
    holds: [...group.holds.values()].sort((a, b) => order[b.topic] - order[a.topic] || a.item.name.localeCompare(b.item.name)),
    verdict: v.state === "idle" ? { ...v, state: "wait" } : v,
    since: items.map(sinceOf).sort()[0] ?? "",
  };
}

// What takes too long becomes a problem without a change, so the answer is made
// again every few seconds.
let tick = 0;
let compute = derive(Object.keys(order), gatherAll);
export function problems() {
  const now = Math.floor(Date.now() / 5000);
  if (now !== tick) {
    tick = now;
    compute = derive(Object.keys(order), gatherAll);
  }
  return compute();
}

// heldUp is the identifiers of what waits for something that has a problem.
export const heldUp = () => new Set(problems().flatMap((g) => g.holds.map(({ item }) => item.id)));
