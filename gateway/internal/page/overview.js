// The overview shows whether the stack is healthy, and otherwise what is stuck and which role has to act.
import { badge, h, icon, link } from "./dom.js";
import { age, count, percent, place, plural } from "./format.js";
import { href, setQuery, to } from "./router.js";
import { all, brokenOf, hasJustChanged } from "./store.js";
import { capacity, mayFail } from "./hosts.js";
import { firstSteps, isInstallationEmpty } from "./firststeps.js";
import { problems, stuckIn } from "./problems.js";
import { bar } from "./tables.js";
import { aboutReason } from "./advice.js";
import { kindOf, layers, nounOf } from "./kinds.js";
import { humanize } from "./texts.js";

const mostShown = 12;

export const overview = {
  title: () => "Overview",
  draw({ query }) {
    const found = problems();
    return [
      h("h1", { tabindex: "-1", class: "quiet" }, "Overview"),
      h(
        "div",
        { class: "overview" },
        h("div", { class: "main-column" }, headline(found), attention(found, query.get("all")), isInstallationEmpty() && firstSteps()),
        h("div", { class: "side-column" }, tiles(), health(), nodes()),
      ),
    ];
  },
};

function headline(found) {
  const worst = found[0]?.assessment.state ?? "good";
  const moving = ["networks", "addresses", "machines", "clusters"].flatMap(all).filter((i) => !i.ready && !i.deleting).length;
  const stuck = stuckIn(found);
  const text = found.length === 0 ? "All is well" : `${plural(found.length, "thing")} ${found.length === 1 ? "needs" : "need"} attention`;
  const held = found.reduce((n, g) => n + g.holds.length, 0);
  const detail =
    found.length === 0
      ? moving
        ? `${plural(moving, "object")} in progress, none delayed.`
        : "All objects are ready."
      : stuck
        ? `${plural(stuck, "object")} stuck${held ? `, and ${count(held)} blocked by them` : ""}.`
        : "No object is stuck.";
  return h(
    "p",
    { class: `headline ${worst}` },
    icon(worst),
    h("span", {}, h("strong", {}, text), " ", h("span", { class: "soft" }, detail)),
  );
}

function attention(found, everything) {
  const shown = everything ? found : found.slice(0, mostShown);
  return h(
    "section",
    { "aria-labelledby": "attention-title" },
    h("h2", { id: "attention-title" }, "Needs attention"),
    found.length === 0
      ? h(
          "p",
          { class: "empty" },
          all("networks").length + all("clusters").length + all("machines").length === 0
            ? "Nothing has been declared yet. The first steps below lead to a cluster."
            : "Nothing. Objects that fail, wait for an action, or take too long are listed here.",
        )
      : h("ul", { class: "attention" }, shown.map(problem)),
    shown.length < found.length &&
      h("button", { type: "button", onclick: () => setQuery({ all: "1" }) }, `Show all ${count(found.length)}`),
  );
}

function problem(g) {
  const { first, assessment: v } = g;
  const many = g.items.length > 1;
  return h(
    "li",
    { key: g.key, class: `problem ${v.state} ${hasJustChanged(first.id) ? "fresh" : ""}` },
    icon(v.state),
    h(
      "div",
      {},
      h("h3", {}, many ? subject(g) : [link(to(g.topic, first), place(first)), h("span", { class: "soft" }, ` ${kindOf[g.topic]}`)]),
      h("p", { class: "what" }, h("strong", {}, humanize(first.reason || first.phase)), first.message ? `: ${first.message}` : ""),
      h("p", { class: "todo" }, v.todo, " ", aboutReason(first.reason, g.topic)),
      g.holds.length > 0 &&
        h(
          "p",
          { class: "soft small" },
          "Blocks ",
          list(
            [...new Map(g.holds.map((held) => [held.item.name, held])).values()].map(({ item, topic }) => link(to(topic, item), item.name)),
            4,
          ),
        ),
    ),
    h(
      "p",
      { class: "when" },
      g.since ? [h("span", { class: "quiet" }, "for "), h("time", { datetime: g.since, title: g.since }, age(g.since))] : "",
      h("br"),
      h("span", { class: "soft" }, v.who),
    ),
  );
}

function subject(g) {
  const where = g.first.cluster
    ? [" of ", link(href("clusters", [g.first.namespace, g.first.cluster]), g.first.cluster)]
    : ` in ${g.first.namespace}`;
  return [
    plural(g.items.length, nounOf[g.topic]),
    where,
    h("span", { class: "soft" }, ": "),
    list(
      g.items.map((i) => link(to(g.topic, i), i.name)),
      3,
    ),
  ];
}

function list(links, most) {
  const parts = [];
  links.slice(0, most).forEach((l, n) => parts.push(n ? ", " : "", l));
  if (links.length > most) parts.push(` and ${count(links.length - most)} more`);
  return parts;
}

function tiles() {
  const of = (topic) => {
    const items = all(topic);
    return { total: items.length, ready: items.filter((i) => i.ready).length, failed: items.filter((i) => i.status === "failed").length };
  };
  const addresses = all("networks").reduce(
    (sum, n) => ({ used: sum.used + (n.addresses?.allocated ?? 0), total: sum.total + (n.addresses?.total ?? 0) }),
    { used: 0, total: 0 },
  );
  const hosts = capacity();
  const up = hosts.reduce((n, c) => n + c.up, 0);
  const may = hosts.length ? Math.min(...hosts.map((c) => Math.max(0, c.may))) : 0;
  return h(
    "section",
    { "aria-labelledby": "counts-title" },
    h("h2", { id: "counts-title", class: "quiet" }, "Counts"),
    h(
      "ul",
      { class: "tiles" },
      tile("clusters", "Clusters", of("clusters"), "in service"),
      tile("machines", "Machines", of("machines"), "running"),
      tile("networks", "Networks", of("networks"), "ready"),
      h(
        "li",
        { key: "addresses" },
        link(href("addresses"), [
          h("span", { class: "label" }, "Addresses"),
          h("strong", {}, count(addresses.used)),
          h("span", { class: "soft" }, addresses.total ? ` of ${count(addresses.total)} in use` : " in use"),
          bar([[percent(addresses.used, addresses.total), "fill"]]),
        ]),
      ),
      h(
        "li",
        { key: "hosts" },
        link(href("hosts"), [
          h("span", { class: "label" }, "Hypervisor nodes"),
          h("strong", {}, count(up)),
          h("span", { class: "soft" }, ` of ${count(hosts.reduce((n, c) => n + c.hosts, 0))} up`),
          h("span", { class: "under" }, hosts.length ? may === 0 ? "cannot lose a node" : `can lose ${plural(may, "node")}` : "none known"),
        ]),
      ),
    ),
  );
}

function tile(view, title, n, what) {
  const under = n.failed ? `${count(n.failed)} failed` : n.ready < n.total ? `${count(n.total - n.ready)} not ready` : "";
  return h(
    "li",
    { key: view },
    link(href(view, [], { ready: under ? "no" : "" }), [
      h("span", { class: "label" }, title),
      h("strong", {}, count(n.ready)),
      h("span", { class: "soft" }, ` of ${count(n.total)} ${what}`),
      bar([
        [percent(n.ready, n.total), "good"],
        [percent(n.failed, n.total), "bad"],
      ]),
      under && h("span", { class: `under ${n.failed ? "bad" : ""}` }, under),
    ]),
  );
}

// health is that of each layer, by its objects and functions, and of each backend.
function health() {
  const found = problems();
  return h(
    "section",
    { "aria-labelledby": "health-title" },
    h("h2", { id: "health-title" }, "Layers and backends"),
    h(
      "table",
      { class: "lines health" },
      h("caption", { class: "quiet" }, "Health of each layer and backend"),
      h(
        "thead",
        { class: "quiet" },
        h(
          "tr",
          {},
          ["Part", "Health", "Detail"].map((t) => h("th", { scope: "col" }, t)),
        ),
      ),
      h(
        "tbody",
        {},
        layers.slice(0, 4).map((l) => layerLine(l, found)),
        all("operators").map((o) =>
          line(
            o.id,
            backends[o.name] ?? o.name,
            operatorState[o.status] ?? "wait",
            o.status,
            [
              o.version,
              plural(o.resources.total, "object"),
              o.resources.orphans && plural(o.resources.orphans, "orphan"),
              !o.ready && o.message,
            ]
              .filter(Boolean)
              .join(" · "),
          ),
        ),
        all("backends").map((b) =>
          line(b.id, networkBackends[b.name] ?? b.name, operatorState[b.status] ?? "wait", b.status, b.message ?? ""),
        ),
        all("operators").length === 0 &&
          line(
            "none",
            "Backends",
            "idle",
            "none in use",
            "No backends in use yet.",
          ),
        [...all("dependencies")]
          .sort((a, b) => partNames.indexOf(a.kind) - partNames.indexOf(b.kind))
          .map((d) => line(d.id, parts[d.kind] ?? d.kind, d.status === "unknown" ? "wait" : operatorState[d.status], d.status, d.kind === "eventSource" ? d.name.split("/")[1] : "")),
      ),
    ),
  );
}

const backends = { kubevirt: "KubeVirt", proxmox: "Proxmox VE", kea: "ISC Kea", talos: "Talos Linux" };
const parts = { broker: "Broker", eventSource: "Event source", resync: "Resync", database: "Event history", cache: "Cache" };
const partNames = Object.keys(parts);
const networkBackends = { nam: "NAM", netbox: "NetBox" };
const operatorState = { healthy: "good", degraded: "act", unhealthy: "bad", unreachable: "bad" };

function layerLine(layer, found) {
  const items = layer.topics.flatMap(all);
  const mine = found.filter((g) => layer.topics.includes(g.topic) || layer.also?.includes(g.topic));
  const stuck = stuckIn(mine);
  const waiting = items.filter((i) => !i.ready).length;
  const broken = brokenOf(layer);
  const state = broken.length || mine.some((g) => g.assessment.state === "bad") ? "bad" : stuck ? "act" : items.length ? "good" : "idle";
  const text = broken.length
    ? `${broken.map((f) => f.name).join(", ")} down`
    : stuck
      ? `${count(stuck)} stuck`
      : items.length === 0
        ? "idle"
        : "healthy";
  return line(
    layer.number,
    link(href("pipeline"), `${layer.number} ${layer.name}`),
    state,
    text,
    `${count(items.length - waiting)} of ${count(items.length)} ready`,
  );
}

const line = (key, name, state, text, detail) =>
  h("tr", { key }, h("th", { scope: "row" }, name), h("td", {}, badge(state, text)), h("td", { class: "soft" }, detail));

function nodes() {
  const pools = capacity();
  if (pools.length === 0) return null;
  return h(
    "section",
    { "aria-labelledby": "capacity-title" },
    h("h2", { id: "capacity-title" }, "Capacity"),
    h(
      "ul",
      { class: "plain" },
      pools.map((c) => h("li", { key: c.name }, badge(c.may > 0 ? "good" : c.may === 0 ? "act" : "bad", c.name), " ", mayFail(c))),
    ),
  );
}
