// The store holds the data of the stream, and notifies its listeners when
// something has changed. A snapshot takes the place of what was known when it is
// complete, so that no view shows half of it.
export const topics = ["networks", "addresses", "allocations", "machines", "providers", "hosts", "vms", "clusters", "clustertemplates", "backups", "operators"];

const mostEvents = 1000;
// functions, orphans, backends and dependencies arrive with the counts, and are shown like the other topics.
const kept = [...topics, "functions", "orphans", "backends", "dependencies"];
const empty = () => new Map(kept.map((t) => [t, new Map()]));

let state = empty();
let incoming = null;
const versions = new Map(kept.map((t) => [t, 0]));
const listeners = new Set();

// changedAt has when an item has last changed, by identifier.
export const changedAt = new Map();
// phaseChanges are the changes of phase since the last announcement.
export const phaseChanges = [];
// feed is the events since the page was opened, the newest first.
export const feed = [];
// synced is true once there is something to show; deliveries has the
// counters of deliveries by function. gaps counts how often the feed may have missed
// events of the history, and gapAt is the last time.
export const streamState = { synced: false, deliveries: {}, feedVersion: 0, pausedChanges: 0, gaps: 0, gapAt: 0 };

export const listen = (f) => listeners.add(f);
export const notify = (kind) => listeners.forEach((f) => f(kind));

export const all = derived((topic) => [...state.get(topic).values()]);
export const get = (topic, id) => state.get(topic).get(id);
export const version = (...names) => names.map((n) => versions.get(n)).join(".");

function derived(make) {
  const kept = new Map();
  return (topic) => {
    const have = kept.get(topic);
    if (have?.at === versions.get(topic)) return have.value;
    const value = make(topic);
    kept.set(topic, { at: versions.get(topic), value });
    return value;
  };
}

// derive remembers what a function makes of topics until one of them changes.
export function derive(names, make) {
  let at, value;
  return () => {
    const now = version(...names);
    if (at !== now) {
      value = make();
      at = now;
    }
    return value;
  };
}

const places = new Map(topics.map((t) => [t, derive([t], () => new Map(all(t).map((i) => [`${i.namespace ?? ""}/${i.name}`, i])))]));

// brokenOf is the functions of a layer that do not run.
export const brokenOf = (layer) => layer.functions.map((name) => get("functions", name)).filter((f) => f && !f.ready);

// find is the item of a name in a namespace.
export const find = (topic, namespace, name) =>
  places
    .get(topic)()
    .get(`${namespace ?? ""}/${name}`);

// group makes an index of a topic by something that items have in common.
export function group(topic, by) {
  return derive([topic], () => {
    const groups = new Map();
    for (const item of all(topic)) {
      const at = by(item);
      if (at === undefined || at === "") continue;
      if (groups.has(at)) groups.get(at).push(item);
      else groups.set(at, [item]);
    }
    return groups;
  });
}

export const machinesOf = group("machines", (m) => m.cluster && `${m.namespace}/${m.cluster}`);
export const machinesOn = group("machines", (m) => m.host && `${m.provider}/${m.host}`);
export const addressesOf = group("addresses", (a) => a.machine && `${a.namespace}/${a.machine}`);
export const allocationsOf = group("allocations", (a) => `${a.namespace}/${a.network}`);
export const vmsOn = group("vms", (v) => v.host);
export const backupsOf = group("backups", (b) => `${b.namespace}/${b.cluster}`);
export const clustersOf = group("clusters", (c) => c.clusterTemplate?.name);
export const networksIn = group("networks", (n) => n.namespace);

// networkOf is the network that an object names, or the only one of its namespace.
export function networkOf(item) {
  if (item.network) return find("networks", item.namespace, item.network);
  const there = networksIn().get(item.namespace) ?? [];
  return there.length === 1 ? there[0] : undefined;
}

// isReceiving reports whether a snapshot has begun and is not complete.
export const isReceiving = () => incoming !== null;

const touch = (topic) => versions.set(topic, versions.get(topic) + 1);

// clear forgets everything, for example after a logout.
export function clear() {
  state = empty();
  incoming = null;
  feed.length = 0;
  streamState.synced = false;
  streamState.deliveries = {};
  kept.forEach(touch);
}

// handlers are what to do with the frames of the stream.
export const handlers = {
  hello({ resumed }) {
    incoming = resumed ? null : empty();
  },
  snapshot({ topic, part, items }) {
    incoming ??= empty();
    if (!incoming.has(topic)) return;
    if (part === 0) incoming.get(topic).clear();
    for (const item of items) incoming.get(topic).set(item.id, { ...item, topic });
  },
  synced() {
    if (!incoming) return;
    state = incoming;
    incoming = null;
    streamState.synced = true;
    kept.forEach(touch);
    handlers.missed();
    notify("state");
  },
  patch({ topic, upserts, removes }) {
    if (!state.has(topic)) return;
    const kept = state.get(topic);
    const now = Date.now();
    for (const item of upserts) {
      const before = kept.get(item.id);
      if (before?.phase !== item.phase) phaseChanges.push({ item, topic, before });
      if (!before || before.phase !== item.phase || before.reason !== item.reason) changedAt.set(item.id, now);
      kept.set(item.id, { ...item, topic });
    }
    for (const id of removes) kept.delete(id);
    touch(topic);
    streamState.pausedChanges += upserts.length + removes.length;
    notify("state");
  },
  missed() {
    streamState.gaps++;
    streamState.gapAt = Date.now();
    notify("event");
  },
  event(event) {
    feed.unshift({ ...event, received: Date.now() });
    feed.length = Math.min(feed.length, mostEvents);
    streamState.feedVersion++;
    notify("event");
  },
  deliveries(functions) {
    streamState.deliveries = functions;
    notify("state");
  },
  summary({ summary }) {
    const functions = (incoming ?? state).get("functions");
    functions.clear();
    for (const f of summary.functions ?? [])
      functions.set(f.name, {
        ...f,
        id: f.name,
        function: true,
        status: f.ready ? "running" : "failed",
        phase: f.ready ? "Ready" : "NotReady",
      });
    const orphans = (incoming ?? state).get("orphans");
    orphans.clear();
    for (const o of summary.orphans ?? [])
      orphans.set(`${o.backend}/${o.name ?? ""}`, {
        ...o,
        id: `${o.backend}/${o.name ?? ""}`,
        name: o.name ?? o.backend,
        provider: o.name,
        reason: "OrphansFound",
        status: "running",
        phase: "OrphansFound",
        ready: false,
      });
    // Other backends are operators, which are a topic of their own.
    const backends = (incoming ?? state).get("backends");
    backends.clear();
    for (const b of summary.backends ?? []) {
      if (!["nam", "netbox"].includes(b.backend)) continue;
      const ready = b.status === "healthy";
      backends.set(b.backend, {
        ...b,
        id: b.backend,
        name: b.backend,
        reason: ready ? "" : b.reason || b.status.replace(/^./, (c) => c.toUpperCase()),
        phase: b.status,
        ready,
      });
    }
    const dependencies = (incoming ?? state).get("dependencies");
    dependencies.clear();
    for (const d of summary.dependencies ?? []) {
      const id = [d.kind, d.name].filter(Boolean).join("/");
      dependencies.set(id, { ...d, id, name: id, reason: d.reason ?? "", phase: d.status, ready: d.status !== "unhealthy" });
    }
    touch("functions");
    touch("orphans");
    touch("backends");
    touch("dependencies");
    notify("state");
  },
  heartbeat() {},
  shutdown() {},
};

// forget drops marks of changes that are not shown any longer.
export function forget() {
  const old = Date.now() - 4000;
  for (const [id, at] of changedAt) if (at < old) changedAt.delete(id);
  if (phaseChanges.length > 200) phaseChanges.splice(0, phaseChanges.length - 200);
}

export const hasJustChanged = (id) => Date.now() - (changedAt.get(id) ?? 0) < 2500;
