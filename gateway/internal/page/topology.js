// The topology of a cluster as a picture: network, cluster, pools, machines and the
// hypervisor nodes that they are on. Equal siblings fold into one card, and what has
// a problem stands by itself, so that it reads as well with 300 machines as with 3.
import { h, icon } from "./dom.js";
import { count, plural, shorten } from "./format.js";
import { href, parse, setQuery, to } from "./router.js";
import { machinesOf, networkOf } from "./store.js";
import { hostOf } from "./hosts.js";
import { assess } from "./advice.js";
import { humanize } from "./texts.js";

const alike = 6;
const mostTroubled = 8;
const mostOpened = 60;
const mostHosts = 10;
const height = { card: 56, gap: 10 };
const columns = [
  { x: 0, w: 180 },
  { x: 215, w: 190 },
  { x: 450, w: 150 },
  { x: 645, w: 270 },
  { x: 975, w: 165 },
];
const width = 1140;

// plan is what is shown: pools, each with cards of single machines and of many.
export function plan(cluster, nodes, opened) {
  const machines = machinesOf().get(`${cluster.namespace}/${cluster.name}`) ?? [];
  const pools = new Map();
  for (const m of machines) {
    const name = m.role === "control-plane" ? "control plane" : m.pool || m.role || "machines";
    if (!pools.has(name)) pools.set(name, []);
    pools.get(name).push(m);
  }
  const first = (a) => (a === "control plane" ? 0 : 1);
  return [...pools]
    .sort(([a], [b]) => first(a) - first(b) || a.localeCompare(b))
    .map(([name, members]) => poolOf(name, members, nodes, opened));
}

function poolOf(name, members, nodes, opened) {
  members.sort((a, b) => a.name.localeCompare(b.name, "en", { numeric: true }));
  const state = (m) =>
    assess(m).state !== "good" ? assess(m).state : nodes.get(m.name)?.state === "Ready" || !nodes.size ? "good" : "wait";
  const fine = members.filter((m) => state(m) === "good");
  const others = members.filter((m) => state(m) !== "good");
  const cards = others.slice(0, mostTroubled).map((m) => single(m, state(m), nodes));
  if (others.length > mostTroubled) cards.push(many(name, others.slice(mostTroubled), state(others[mostTroubled]), "more not ready"));
  if (fine.length <= alike || opened === name) {
    cards.push(...fine.slice(0, mostOpened).map((m) => single(m, "good", nodes)));
    if (fine.length > mostOpened) cards.push(many(name, fine.slice(mostOpened), "good", "more ready"));
  } else cards.push(many(name, fine, "good", "ready", true));
  return { name, total: members.length, ready: fine.length, cards };
}

function single(m, state, nodes) {
  const node = nodes.get(m.name);
  return {
    key: m.id,
    state,
    machines: [m],
    href: to("machines", m),
    title: m.name,
    lines: [
      [m.addresses[0] ?? "no address yet", m.vm && `VM ${m.vm}`].filter(Boolean).join(" · "),
      m.ready ? (node ? `node ${node.state}` : m.phase) : humanize(m.reason) || m.phase,
    ],
  };
}

const many = (pool, machines, state, what, folds) => ({
  key: `${pool}-${what}`,
  state,
  machines,
  stack: true,
  title: `${count(machines.length)} ${what}`,
  folds: folds && pool,
  href: folds ? undefined : href("machines", [], { cluster: machines[0].cluster, ns: machines[0].namespace }),
  lines: [`${machines[0].name} …`, folds ? "show each of them" : "show them in the table"],
});

// place gives each part its room. It returns boxes and the lines between them.
function place(cluster, network, pools) {
  const boxes = [];
  const lines = [];
  let y = 0;
  const poolBoxes = pools.map((p) => {
    const top = y;
    const cards = p.cards.map((c) => {
      const box = { ...c, col: 3, y, key: c.key };
      y += height.card + height.gap;
      return box;
    });
    const box = {
      key: `pool-${p.name}`,
      col: 2,
      y: (top + y - height.gap - height.card) / 2,
      state: p.ready === p.total ? "good" : "wait",
      title: p.name,
      lines: [`${p.ready} of ${p.total} ready`],
      cards,
    };
    boxes.push(box, ...cards);
    cards.forEach((c) => lines.push([box, c]));
    y += height.gap;
    return box;
  });
  y = Math.max(y, height.card);
  const middle = poolBoxes.length ? (poolBoxes[0].y + poolBoxes.at(-1).y) / 2 : 0;
  const own = {
    key: "cluster",
    col: 1,
    y: middle,
    state: assess(cluster).state,
    title: cluster.name,
    lines: [cluster.phase, cluster.endpoint?.replace("https://", "") ?? "no endpoint yet"],
    strong: true,
  };
  boxes.push(own);
  poolBoxes.forEach((b) => lines.push([own, b]));
  if (network) {
    const box = {
      key: "network",
      col: 0,
      y: middle,
      state: assess(network).state,
      title: network.name,
      href: to("networks", network),
      lines: [network.ipv4Prefix ?? network.ipv6Prefix ?? network.phase, network.vlanId ? `VLAN ${network.vlanId}` : network.ready && "untagged"],
    };
    boxes.push(box);
    lines.push([box, own]);
  }
  y = Math.max(y, placeHosts(boxes, lines, y));
  return { boxes, lines, height: Math.max(y, height.card) + 4 };
}

function placeHosts(boxes, lines, total) {
  const hosts = new Map();
  for (const box of boxes.filter((b) => b.machines)) {
    for (const m of box.machines) {
      if (!m.host) continue;
      if (!hosts.has(m.host)) hosts.set(m.host, { machines: [], boxes: new Set() });
      hosts.get(m.host).machines.push(m);
      hosts.get(m.host).boxes.add(box);
    }
  }
  let list = [...hosts].sort(([a], [b]) => a.localeCompare(b, "en", { numeric: true }));
  const rest = list.length > mostHosts ? list.slice(mostHosts - 1) : [];
  if (rest.length) list = list.slice(0, mostHosts - 1);
  const cards = list.map(([name, on]) => {
    const host = hostOf(on.machines[0]);
    return {
      key: `host-${name}`,
      state: host && !host.ready ? "bad" : "good",
      title: name,
      href: href("hosts", [], { q: name }),
      lines: [host ? `${on.machines.length} of its ${plural(host.vms, "machine")}` : plural(on.machines.length, "machine")],
      on,
    };
  });
  if (rest.length)
    cards.push({
      key: "host-rest",
      state: "good",
      title: `${rest.length} more nodes`,
      href: href("hosts"),
      lines: [],
      on: { boxes: new Set(rest.flatMap(([, on]) => [...on.boxes])) },
    });
  const step = Math.max(height.card + height.gap, cards.length ? (total - height.gap) / cards.length : 0);
  cards.forEach((c, n) => {
    const box = { ...c, col: 4, y: n * step + (step - height.card - height.gap) / 2 };
    boxes.push(box);
    for (const from of c.on.boxes) lines.push([from, box]);
  });
  return cards.length * step;
}

function card(box) {
  const { x, w } = columns[box.col];
  const most = Math.floor((w - 41) / 8.2);
  const lines = box.lines.filter(Boolean).map((line) => shorten(line, Math.floor((w - 20) / 6.4)));
  const label = [shorten(box.title, most), ...lines].join(" ");
  const body = [
    h("title", {}, [box.title, ...box.lines].filter(Boolean).join(", ")),
    box.stack && h("rect", { class: "shadow", x: 5, y: 5, width: w, height: height.card, rx: 6 }),
    h("rect", { class: `card-box ${box.state}`, width: w, height: height.card, rx: 6 }),
    h("rect", { class: `edge ${box.state}`, width: 4, height: height.card, rx: 2 }),
    h("g", { transform: "translate(11 7)" }, icon(box.state)),
    h("text", { class: "card-title", x: 33, y: 20 }, shorten(box.title, most)),
    lines.map((line, n) => [" ", h("text", { key: `line-${n}`, class: "card-line", x: 12, y: 35 + n * 14 }, line)]),
  ];
  const at = { key: box.key, transform: `translate(${x} ${box.y + 2})`, class: "topology-card" };
  if (box.folds) return h("a", { ...at, href: unfolded(box.folds), "aria-label": label }, body);
  return box.href ? h("a", { ...at, href: box.href, "aria-label": label }, body) : h("g", at, body);
}

// unfolded is the address of the same view with each machine of a pool by itself.
function unfolded(pool) {
  const { view, args, query } = parse();
  return href(view, args, { ...Object.fromEntries(query), open: pool });
}

function wire([from, into], n) {
  const x1 = columns[from.col].x + columns[from.col].w;
  const x2 = columns[into.col].x;
  const y1 = from.y + 2 + height.card / 2;
  const y2 = into.y + 2 + height.card / 2;
  const bend = (x2 - x1) / 2;
  return h("path", {
    key: `w${n}`,
    class: `wire ${into.col === 4 ? "faint" : ""}`,
    d: `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`,
  });
}

// topology describes the picture, and the same as a list where there is no room for
// the picture.
export function topology(cluster, nodes, query) {
  const pools = plan(cluster, nodes, query.get("open"));
  if (pools.length === 0)
    return h("p", { class: "empty" }, "No machines yet. They are created when the spec of the cluster is valid and its network is ready.");
  const placed = place(cluster, networkOf(cluster), pools);
  return [
    h(
      "div",
      { class: "topology", role: "region", tabindex: "0", "aria-label": `Topology of ${cluster.name}, can be scrolled` },
      h(
        "svg",
        {
          viewBox: `0 0 ${width + 8} ${placed.height}`,
          style: { "max-width": `${width + 8}px` },
          role: "group",
          "aria-label": `Topology of ${cluster.name}`,
        },
        h("g", { "aria-hidden": "true" }, placed.lines.map(wire)),
        placed.boxes.map(card),
      ),
    ),
    h(
      "ul",
      { class: "topology-list plain" },
      pools.map((p) =>
        h(
          "li",
          { key: p.name },
          h("strong", {}, p.name),
          ` ${p.ready} of ${p.total} ready`,
          h(
            "ul",
            {},
            p.cards.map((c) =>
              h(
                "li",
                { key: c.key },
                icon(c.state),
                " ",
                h("a", { href: c.folds ? unfolded(c.folds) : c.href }, c.title),
                h(
                  "span",
                  { class: "soft small" },
                  " ",
                  [...c.lines, c.machines[0].host && !c.stack ? `on ${c.machines[0].host}` : ""].filter(Boolean).join(" · "),
                ),
              ),
            ),
          ),
        ),
      ),
    ),
    query.get("open") && h("button", { type: "button", onclick: () => setQuery({ open: "" }) }, "Collapse"),
  ];
}
