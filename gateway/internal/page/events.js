// The stream of domain events, with what the history has before it.
import { h, link } from "./dom.js";
import { count, moment } from "./format.js";
import { fetchAnswer } from "./api.js";
import { searchForm } from "./grid.js";
import { href, setQuery } from "./router.js";
import { all, derive, feed, notify, streamState } from "./store.js";
import { eventText, eventTexts, humanize } from "./texts.js";

const view = { paused: false, frozen: null, open: new Set(), older: [], next: "", loading: "", gaps: -1, path: "", wanted: "", timer: 0 };
// typing is how long to wait for more text before the history is searched, in milliseconds.
const typing = 250;

// parameters are the filters of the view, as the API calls them.
const parameters = { type: "type", ns: "namespace", cluster: "cluster", q: "q" };

// newestOf is the path of the newest events of the history that match a query.
function newestOf(query) {
  const asked = new URLSearchParams({ limit: "100" });
  for (const [name, parameter] of Object.entries(parameters)) {
    const value = (query.get(name) ?? "").trim();
    if (value) asked.set(parameter, value);
  }
  return `/api/v1/events?${asked}`;
}
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

// merged returns the events that match a query: what the history answered for it, and those of the feed.
function merged(query) {
  const wanted = (query.get("q") ?? "").toLowerCase().split(/\s+/).filter(Boolean);
  const matches = (e) =>
    (!query.get("type") || e.type === query.get("type")) &&
    (!query.get("ns") || e.namespace === query.get("ns")) &&
    (!query.get("cluster") || e.cluster === query.get("cluster")) &&
    wanted.every((w) => `${e.type} ${eventText(e.type)} ${e.namespace} ${e.name} ${e.cluster} ${e.dead}`.toLowerCase().includes(w));
  const seen = new Set();
  const past = view.path === newestOf(query) ? view.older.map(normal) : view.older.map(normal).filter(matches);
  return [...feed.map(normal).filter(matches), ...past]
    .filter((e) => !seen.has(e.id) && seen.add(e.id))
    .sort((a, b) => (b.time ?? "").localeCompare(a.time ?? ""));
}

const loadOlder = () => load(view.next, false);

// catchUp asks the history if the filters have changed, or if the feed may have missed something.
function catchUp(query) {
  const path = newestOf(query);
  if (path !== view.wanted) {
    clearTimeout(view.timer);
    const wait = view.wanted && query.get("q") ? typing : 0;
    Object.assign(view, { paused: false, frozen: null });
    view.wanted = path;
    view.timer = setTimeout(() => load(path, true), wait);
  } else if (view.gaps !== streamState.gaps && !view.loading && view.path === path) load(path, true);
}

// load asks the history for a page of events. A fresh one takes the place of those before.
async function load(path, fresh) {
  if (!path || view.loading === path) return;
  view.loading = path;
  view.failed = "";
  const gaps = streamState.gaps;
  const before = streamState.gapAt;
  const answer = await fetchAnswer(path).catch(() => null);
  const events = answer?.ok ? await answer.json().then((body) => body.events, () => null) : null;
  // The filters may have changed while the answer was on its way.
  if (view.loading !== path) return;
  view.loading = "";
  view.gaps = gaps;
  if (events) {
    if (fresh) {
      view.path = path;
      view.older = [];
      // The history has these too, and between them what was missed.
      if (!/[?&](type|namespace|cluster|q)=/.test(path))
        for (let i = feed.length - 1; i >= 0; i--) if (feed[i].received < before && !feed[i].knativeerrordest) feed.splice(i, 1);
    }
    view.older = [...view.older, ...events].slice(0, mostOlder);
    view.next = view.older.length < mostOlder ? /<([^>]+)>; rel="next"/.exec(answer.headers.get("Link") ?? "")?.[1] : "";
  } else view.failed = path;
  notify("answer");
}

// namespaces are those of the objects that the page knows.
const namespaces = derive(["networks", "machines", "clusters"], () => new Set(["networks", "machines", "clusters"].flatMap(all).map((i) => i.namespace)));

export const eventsView = {
  title: () => "Events",
  leave() {
    clearTimeout(view.timer);
    Object.assign(view, { paused: false, frozen: null, wanted: "" });
  },
  draw({ query }) {
    catchUp(query);
    const found = view.frozen ?? merged(query);
    const types = new Set([...Object.keys(eventTexts), ...found.map((e) => e.type), query.get("type")].filter(Boolean));
    const spaces = new Set([...namespaces(), ...found.map((e) => e.namespace), query.get("ns")].filter(Boolean));
    const filtered = Object.keys(parameters).some((name) => query.get(name));
    const behind = view.frozen ? merged(query).length - view.frozen.length : 0;
    const choose = (name, title, values, show) =>
      h(
        "label",
        { class: "field" },
        h("span", {}, title),
        h(
          "select",
          { value: query.get(name) ?? "", onchange: (e) => setQuery({ [name]: e.target.value }) },
          h("option", { value: "" }, "all"),
          [...values].sort().map((v) => h("option", { key: v, value: v }, show(v))),
        ),
      );
    return [
      h("h1", { tabindex: "-1" }, "Events"),
      searchForm(
        "Events",
        "name, cluster, kind of event …",
        query,
        choose("type", "Kind", types, eventText),
        choose("ns", "Namespace", spaces, (v) => v),
        h("p", { class: "found" }, `${count(found.length)} shown`),
        h(
          "button",
          {
            type: "button",
            "aria-pressed": String(view.paused),
            onclick: () => {
              view.paused = !view.paused;
              view.frozen = view.paused ? found : null;
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
          h("button", { type: "button", class: "small", onclick: () => load(view.failed, view.failed === newestOf(query)) }, "Try again"),
        ),
      found.length === 0
        ? h(
            "div",
            { class: "empty" },
            h("p", { class: "lead" }, view.loading || view.path !== newestOf(query) ? "Loading …" : filtered ? "No event matches." : "No events yet."),
            h(
              "p",
              {},
              !filtered
                ? "They come when machines run or are deleted, addresses are configured, clusters change, and backends come and go."
                : "Search for less, or choose another kind.",
            ),
          )
        : h("ol", { class: "event-list plain" }, found.slice(0, mostShown).map(line)),
      found.length > mostShown && h("p", { class: "soft" }, `The newest ${count(mostShown)} are shown. Search to find others.`),
      view.next &&
        h("button", { type: "button", onclick: loadOlder, disabled: Boolean(view.loading) }, view.loading ? "Loading …" : "Load older events"),
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
        h("span", { class: "kind" }, e.dead ? "Dead letter" : eventText(e.type)),
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
  return e.data?.status ? `${humanize(e.data.operator ?? "")} ${e.data.status}` : "";
}

const strip = ({ received, ...event }) => event;
