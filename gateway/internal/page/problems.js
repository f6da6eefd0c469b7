// Problems are what needs attention: what has failed, what needs an action,
// and what takes too long. An item that waits for an item with a problem is
// listed under that problem. A condition other than Ready that needs attention
// is a problem of its own.
import { all, derive } from "./store.js";
import { chainOf, isOverdue, sinceOf } from "./causes.js";
import { late, verdict } from "./words.js";

const order = {
  networks: 1, addresses: 2, allocations: 2, machines: 3, clusters: 4, backups: 5, providers: 0, operators: 0, hosts: 0, functions: 0, orphans: 0, backends: 0,
  dependencies: 0,
};
const rank = { bad: 0, act: 1, wait: 2 };

// isProblem reports whether an item that is not ready needs attention.
const isProblem = (item) => !verdict(item).waits || isOverdue(item);

// grouped are the topics whose items are one problem if one cause makes them fail alike: the machines of a cluster, and what
// lacks an address of a network. A mistake in the spec of an interface or an address is a problem of its own.
const grouped = {
  machines: (m) => m.cluster,
  addresses: (a) => verdict(a).who !== "requester" && a.network,
  allocations: (a) => verdict(a).who !== "requester" && a.network,
};

// likeness is equal for problems that are listed together.
const likeness = ({ item, topic }) => {
  const group = grouped[topic]?.(item);
  return [topic, item.namespace, group || "", item.condition, item.reason, group ? "" : item.name].join("|");
};

// warned returns an item once for each of its warnings, with the reason and the message of that condition.
const warned = (item) =>
  (item.warnings ?? []).map((w) => ({ ...item, condition: w.type, reason: w.reason, message: w.message, since: w.since, owner: w.turn, ready: false, status: "" }));

// isListed leaves out reservations of a DHCP server, which are part of a NetworkConfiguration.
const isListed = (item, topic) => !item.ready && !(topic === "allocations" && item.method === "dhcp");

// problems are groups: {state, verdict, topic, items, holds}, the worst first and
// then the oldest.
function gatherAll() {
  const groups = new Map();
  const groupOf = (found) => {
    const key = likeness(found);
    if (!groups.has(key)) groups.set(key, { key, topic: found.topic, condition: found.item.condition, items: new Map(), holds: new Map() });
    const group = groups.get(key);
    group.items.set(found.item.id, found.item);
    return group;
  };
  for (const topic of Object.keys(order)) {
    for (const item of all(topic)) {
      for (const warning of warned(item)) groupOf({ item: warning, topic });
      if (!isListed(item, topic)) continue;
      const root = chainOf(item, topic).at(-1);
      if (!isProblem(root.item) && !isProblem(item)) continue;
      const group = groupOf(root);
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

// stuckIn counts the items of problems that are not ready. What a warning is about is ready, or counted for its own problem.
export const stuckIn = (groups) => groups.filter((g) => !g.condition).reduce((n, g) => n + g.items.length, 0);

// standings has, by identifier, whether an item that is not ready is stuck, or held up by another that is.
export const standings = () =>
  new Map(
    problems()
      .filter((g) => !g.condition)
      .flatMap((g) => [...g.holds.map(({ item }) => [item.id, "held"]), ...g.items.map((item) => [item.id, "stuck"])]),
  );
