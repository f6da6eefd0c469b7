// Problems are what needs attention: what has failed, what needs an action,
// and what takes too long. An item that waits for an item with a problem is
// listed under that problem. A condition other than Ready that needs attention
// is a problem of its own.
import { all, derive } from "./store.js";
import { now } from "./format.js";
import { chainOf, isOverdue, judge, sinceOf } from "./causes.js";
import { assess, assessOverdue, pauseOf } from "./advice.js";

const order = {
  networks: 1, addresses: 2, allocations: 2, machines: 3, clusters: 4, clustertemplates: 5, backups: 5, providers: 0, operators: 0, hosts: 0, functions: 0, orphans: 0, backends: 0,
  dependencies: 0,
};
const rank = { bad: 0, act: 1, wait: 2 };

// isStuck reports whether an item that is not ready needs attention, as IsStuck of package cause does.
const isStuck = ({ item, topic }) => !judge(item, topic).waits || isOverdue(item);

// grouped are the topics whose items are one problem if one cause makes them fail alike: the machines of a cluster, and what
// lacks an address of a network. A mistake in the spec of an interface or an address is a problem of its own.
const grouped = {
  machines: (m) => m.cluster,
  addresses: (a) => assess(a).who !== "requester" && a.network,
  allocations: (a) => assess(a).who !== "requester" && a.network,
};

// groupKey is equal for problems that are listed together. The same reason has another remedy if the object is paused.
const groupKey = ({ item, topic }) => {
  const group = grouped[topic]?.(item);
  return [topic, item.namespace, group || "", item.condition ?? pauseOf(item)?.reason, item.reason, group ? "" : item.name].join("|");
};

// warningsOf returns an item once for each of its warnings, with the reason and the message of that condition.
const warningsOf = (item) =>
  (item.warnings ?? []).map((w) => ({ ...item, condition: w.type, reason: w.reason, message: w.message, since: w.since, turn: w.turn, remedy: w.remedy, ready: false, status: "" }));

// isListed leaves out reservations of a DHCP server, which are part of a NetworkConfiguration.
const isListed = (item, topic) => !item.ready && !(topic === "allocations" && item.method === "dhcp");

// problems are groups: {state, assessment, topic, items, holds}, the worst first and
// then the oldest.
function groupProblems() {
  const groups = new Map();
  const groupOf = (found) => {
    const key = groupKey(found);
    if (!groups.has(key)) groups.set(key, { key, topic: found.topic, condition: found.item.condition, items: new Map(), holds: new Map() });
    const group = groups.get(key);
    group.items.set(found.item.id, found.item);
    return group;
  };
  for (const topic of Object.keys(order)) {
    for (const item of all(topic)) {
      const root = isListed(item, topic) && chainOf(item, topic).at(-1);
      for (const warning of warningsOf(item)) {
        // The problem of a paused object that is the cause itself has the same remedy.
        if (root?.item !== item || warning.condition !== pauseOf(item)?.type) groupOf({ item: warning, topic });
      }
      if (!root) continue;
      if (!isStuck(root) && !isStuck({ item, topic })) continue;
      const group = groupOf(root);
      if (root.item !== item) group.holds.set(item.id, { item, topic });
    }
  }
  return [...groups.values()]
    .map(summarize)
    .sort((a, b) => rank[a.assessment.state] - rank[b.assessment.state] || a.since.localeCompare(b.since) || a.key.localeCompare(b.key));
}

function summarize(group) {
  const items = [...group.items.values()].sort((a, b) => a.name.localeCompare(b.name));
  const first = items[0];
  // What needs no action is here because it has lasted too long.
  const own = judge(first, group.topic);
  const v = own.waits ? assessOverdue(own, group.topic) : { ...own };
  // One command resumes all paused objects.
  if ((first.condition ?? pauseOf(first)?.type) === "Paused") v.todo = v.todo.replace(` ${first.name} -n `, ` ${items.map((item) => item.name).join(" ")} -n `);
  return {
    ...group,
    items,
    first,
    holds: [...group.holds.values()].sort((a, b) => order[b.topic] - order[a.topic] || a.item.name.localeCompare(b.item.name)),
    assessment: v.state === "idle" ? { ...v, state: "wait" } : v,
    since: items.map(sinceOf).sort()[0] ?? "",
  };
}

// What takes too long becomes a problem without a change, so the answer is made
// again every few seconds.
let tick = 0;
let compute = derive(Object.keys(order), groupProblems);
export function problems() {
  const present = Math.floor(now() / 5000);
  if (present !== tick) {
    tick = present;
    compute = derive(Object.keys(order), groupProblems);
  }
  return compute();
}

// stuckIn counts the items of problems that are not ready. What a warning is about is ready, or counted for its own problem.
export const stuckIn = (groups) => groups.filter((g) => !g.condition).reduce((n, g) => n + g.items.length, 0);

// stuckAndHeld has, by identifier, whether an item that is not ready is stuck, or blocked by another that is.
export const stuckAndHeld = () =>
  new Map(
    problems()
      .filter((g) => !g.condition)
      .flatMap((g) => [...g.holds.map(({ item }) => [item.id, "held"]), ...g.items.map((item) => [item.id, "stuck"])]),
  );
