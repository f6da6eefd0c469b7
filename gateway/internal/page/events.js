// The stream of domain events, with what the history has before it.
import { h, link } from "./dom.js";
import { count, moment } from "./format.js";
import { searchForm } from "./grid.js";
import { href, setQuery } from "./router.js";
import { feed, known, notify } from "./store.js";
import { eventWords, words } from "./words.js";

const newest = "/api/v1/events?limit=100";
const view = { paused: false, frozen: null, open: new Set(), older: [], next: "", loading: false, gaps: -1 };
const mostOlder = 2000;
const mostShown = 300;

// normal is an event in one form, whether it comes from the stream or the history.
function normal(e) {
  const subject = /namespaces\/([^/]+)\/([^/]+)\/([^/]+)/.exec(e.subject ?? "");
  return {
    id: `${e.source}|${e.id}`,
    type: e.type,
    time: e.time,
    namespace: e.namespace || e.data?.namespace || subject?.[1] || "",
    name: e.name || e.data?.name || subject?.[3] || e.subject || "",
    cluster: e.cluster || e.data?.cluster || "",
    dead: e.knativeerrordest ? `not taken by ${/^(?:https?:\/\/)?([a-z-]+)/.exec(e.knativeerrordest)?.[1] ?? "its receiver"}` : "",
    raw: e,
  };
}

function merged() {
  const seen = new Set();
  return [...feed, ...view.older]
    .map(normal)
    .filter((e) => !seen.has(e.id) && seen.add(e.id))
    .sort((a, b) => (b.time ?? "").localeCompare(a.time ?? ""));
}

const loadOlder = () => load(view.next);

// catchUp reads the history again if the feed may have missed something.
function catchUp() {
  if (view.gaps === known.gaps || view.loading) return;
  view.gaps = known.gaps;
  load(newest);
}

async function load(path) {
  if (!path || view.loading) return;
  view.loading = true;
  view.failed = "";
  const before = known.gapAt;
  const answer = await fetch(path).catch(() => null);
  const events = answer?.ok ? (await answer.json()).events : [];
  view.loading = false;
  if (answer?.ok) {
    if (path === newest) {
      view.older = [];
      // The history has these too, and between them what was missed.
      for (let i = feed.length - 1; i >= 0; i--) if (feed[i].received < before && !feed[i].knativeerrordest) feed.splice(i, 1);
    }
    view.older = [...view.older, ...events].slice(0, mostOlder);
    view.next = view.older.length < mostOlder ? /<([^>]+)>; rel="next"/.exec(answer.headers.get("Link") ?? "")?.[1] : "";
  } else view.failed = path;
  notify("answer");
}

export const eventsView = {
  title: () => "Events",
  leave() {
    view.paused = false;
    view.frozen = null;
  },
  draw({ query }) {
    catchUp();
    const now = view.frozen ?? merged();
    const types = new Map();
    const spaces = new Map();
    for (const e of now) {
      types.set(e.type, (types.get(e.type) ?? 0) + 1);
      if (e.namespace) spaces.set(e.namespace, (spaces.get(e.namespace) ?? 0) + 1);
    }
    const wanted = (query.get("q") ?? "").toLowerCase().split(/\s+/).filter(Boolean);
    const found = now.filter(
      (e) =>
        (!query.get("type") || e.type === query.get("type")) &&
        (!query.get("ns") || e.namespace === query.get("ns")) &&
        (!query.get("cluster") || e.cluster === query.get("cluster")) &&
        wanted.every((w) => `${e.type} ${eventWords(e.type)} ${e.namespace} ${e.name} ${e.cluster} ${e.dead}`.toLowerCase().includes(w)),
    );
    const behind = view.frozen ? merged().length - view.frozen.length : 0;
    const choose = (name, title, tally, show) =>
      h(
        "label",
        { class: "field" },
        h("span", {}, title),
        h(
          "select",
          { value: query.get(name) ?? "", onchange: (e) => setQuery({ [name]: e.target.value }) },
          h("option", { value: "" }, "all"),
          [...tally].sort().map(([v, n]) => h("option", { key: v, value: v }, `${show(v)} (${count(n)})`)),
        ),
      );
    return [
      h("h1", { tabindex: "-1" }, "Events"),
      searchForm(
        "Events",
        "name, cluster, kind of event …",
        query,
        choose("type", "Kind", types, eventWords),
        choose("ns", "Namespace", spaces, (v) => v),
        h("p", { class: "found" }, `${count(found.length)} shown`),
        h(
          "button",
          {
            type: "button",
            "aria-pressed": String(view.paused),
            onclick: () => {
              view.paused = !view.paused;
              view.frozen = view.paused ? merged() : null;
              notify("answer");
            },
          },
          view.paused ? `Resume (${count(behind)} new)` : "Pause",
        ),
      ),
      view.failed &&
        h(
          "p",
          { class: "note bad" },
          "The history cannot be read at present. New events still show up here. ",
          h("button", { type: "button", class: "small", onclick: () => load(view.failed) }, "Try again"),
        ),
      found.length === 0
        ? h(
            "div",
            { class: "empty" },
            h("p", { class: "lead" }, now.length === 0 ? (view.loading ? "Loading …" : "No events yet.") : "No event is like that."),
            h(
              "p",
              {},
              now.length === 0
                ? "They come when machines run or are deleted, addresses are configured, clusters change, and backends come and go."
                : "Search for less, or choose another kind.",
            ),
          )
        : h("ol", { class: "event-list plain" }, found.slice(0, mostShown).map(line)),
      found.length > mostShown && h("p", { class: "soft" }, `The newest ${count(mostShown)} are shown. Search to find others.`),
      view.next &&
        h("button", { type: "button", onclick: loadOlder, disabled: view.loading }, view.loading ? "Loading …" : "Load older events"),
    ];
  },
};

const pageOf = { "infrastructure.machine.created": "machines", "infrastructure.cluster.updated": "clusters" };

function line(e) {
  const page = pageOf[e.type];
  const open = view.open.has(e.id);
  const first = e.raw.received && Date.now() - e.raw.received < 2500;
  return h(
    "li",
    { key: e.id, class: `${first ? "fresh" : ""} ${e.dead ? "dead" : ""}` },
    h(
      "details",
      {
        open,
        ontoggle: (t) => {
          if (t.target.open) view.open.add(e.id);
          else view.open.delete(e.id);
          notify("answer");
        },
      },
      h(
        "summary",
        {},
        h("time", { datetime: e.time, title: e.time }, moment(e.time)),
        h("span", { class: "kind" }, e.dead ? "Dead letter" : eventWords(e.type)),
        h("strong", {}, e.name),
        h(
          "span",
          { class: "soft" },
          [e.namespace, e.cluster && e.cluster !== e.name && `cluster ${e.cluster}`, e.dead, change(e.raw)].filter(Boolean).join(" · "),
        ),
      ),
      open &&
        h(
          "div",
          { class: "detail" },
          page && e.namespace && h("p", {}, link(href(page, [e.namespace, e.name]), `Look at ${e.name}`)),
          h("pre", { tabindex: "0", "aria-label": "The event as JSON" }, JSON.stringify(strip(e.raw), null, 2)),
        ),
    ),
  );
}

function change(e) {
  const phase = (e.data?.changes ?? []).find((c) => /phase$/.test(c.path));
  if (phase) return `${phase.from ?? "nothing"} → ${phase.to ?? "nothing"}`;
  return e.data?.status ? `${words(e.data.operator ?? "")} ${e.data.status}` : "";
}

const strip = ({ received, ...event }) => event;
