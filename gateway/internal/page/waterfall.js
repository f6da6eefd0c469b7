// The life of a cluster over all layers, as a waterfall: when each part was asked
// for, how long it took, and what it is made of.
import { h, icon, link } from "./dom.js";
import { clock, now, plural, since, span } from "./format.js";
import { setQuery, to } from "./router.js";
import { get } from "./store.js";
import { layers, nounOf } from "./kinds.js";
import { conditionText, humanize } from "./texts.js";

const alike = 5;

// rows are the spans, with equal siblings as one.
function rowsOf(spans, everything) {
  const groups = new Map();
  for (const s of spans) {
    const key = `${s.layer}/${s.topic}/${s.step ? `step ${s.step}` : ""}`;
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(s);
  }
  return [...groups.values()].flatMap((list) => (list.length <= alike || everything ? list.map((s) => ({ ...s })) : folded(list)));
}

function folded(list) {
  const open = list.filter((s) => !s.end);
  const closed = list.filter((s) => s.end);
  const sum = closed.length > 0 && {
    ...closed[0],
    many: closed.length,
    start: closed.map((s) => s.start).sort()[0],
    end: closed
      .map((s) => s.end)
      .sort()
      .at(-1),
    longest: Math.max(...closed.map((s) => s.seconds)),
  };
  return [sum, ...open.slice(0, alike)].filter(Boolean);
}

// frame is the time that is shown: until the cluster was in service for the first
// time, or all of its life.
function frame(life, spans, whole) {
  const present = now();
  const own = spans.filter((s) => s.layer > 1);
  const start = Math.min(...own.map((s) => Date.parse(s.start)), Date.parse(life.start));
  const ends = own.map((s) => (s.end ? Date.parse(s.end) : present));
  const ready = life.end ? Date.parse(life.end) : present;
  const late = own.some((s) => Date.parse(s.start) > ready);
  return { start, end: Math.max(start + 500, whole ? Math.max(...ends, ready) : ready, late && whole ? present : 0), late, ready };
}

export function waterfall(life, query) {
  const whole = query.get("life") === "all";
  const f = frame(life, life.spans, whole);
  const inFrame = life.spans.filter((s) => whole || Date.parse(s.start) <= f.end);
  const rows = rowsOf(inFrame, query.get("spans") === "all");
  const length = f.end - f.start;
  const at = (time) => Math.max(0, Math.min(100, (100 * (Date.parse(time) - f.start)) / length));
  const foldable = rows.some((r) => r.many) || query.get("spans") === "all";
  return [
    h(
      "p",
      { class: "soft" },
      life.end
        ? `Ready ${span((f.ready - f.start) / 1000)} after its creation at ${clock(life.start)}.`
        : `Created ${span(since(life.start))} ago, not ready yet.`,
    ),
    h(
      "div",
      { class: "buttons" },
      foldable &&
        h(
          "button",
          {
            type: "button",
            class: "small",
            "aria-pressed": String(query.get("spans") === "all"),
            onclick: () => setQuery({ spans: query.get("spans") ? "" : "all" }),
          },
          "Show each machine",
        ),
      f.late &&
        h(
          "button",
          { type: "button", class: "small", "aria-pressed": String(whole), onclick: () => setQuery({ life: whole ? "" : "all" }) },
          "Show full history",
        ),
    ),
    h(
      "div",
      { class: "scroll", role: "region", tabindex: "0", "aria-label": "Waterfall, can be scrolled" },
      h(
        "table",
        { class: "waterfall" },
        h("caption", { class: "quiet" }, "What happened in which layer, from when, and for how long"),
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            h("th", { scope: "col" }, "Part"),
            h("th", { scope: "col", class: "axis" }, h("span", { class: "quiet" }, "Time"), ticks(length / 1000)),
            h("th", { scope: "col", class: "number" }, "Took"),
          ),
        ),
        h(
          "tbody",
          {},
          rows.map((r, n) => line(r, n, at, rows[n - 1])),
        ),
      ),
    ),
    life.partial && h("p", { class: "note" }, life.partial),
  ];
}

function ticks(seconds) {
  const steps = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400, 604800];
  const by = steps.find((s) => seconds / s <= 6) ?? seconds / 4;
  const marks = [];
  for (let t = 0; t <= seconds * 0.97; t += by)
    marks.push(
      h(
        "span",
        { key: t, class: "tick", "aria-hidden": "true", style: { left: `${(100 * t) / seconds}%` } },
        t === 0 ? "0" : span(t).replace(".0", ""),
      ),
    );
  return marks;
}

function line(r, n, at, before) {
  const item = get(r.topic, r.id);
  const left = at(r.start);
  const right = r.end ? at(r.end) : 100;
  const state = r.end ? "good" : r.status === "failed" ? "bad" : "wait";
  const title = r.many ? `${plural(r.many, nounOf[r.topic])}` : r.step ? conditionText(r.step, r.end ? "True" : "False") : r.name;
  const early = r.end && Date.parse(r.end) > 0 && right <= 0;
  const took = r.many ? `≤ ${span(r.longest)}` : r.end ? span(r.seconds) : `${span(r.seconds)} …`;
  const firstOfLayer = before?.layer !== r.layer;
  return h(
    "tr",
    { key: r.many ? `many-${r.topic}` : `${r.id}-${r.step ?? ""}`, class: `${firstOfLayer ? "first" : ""} ${r.step ? "step" : ""}` },
    h(
      "th",
      { scope: "row" },
      firstOfLayer
        ? h("span", { class: "number" }, r.layer, h("span", { class: "quiet" }, ` ${layers[r.layer - 1].name}: `))
        : h("span", { class: "number blank" }),
      r.step || r.many || !item ? title : link(to(r.topic, item), title),
    ),
    h(
      "td",
      { class: "axis" },
      early
        ? h("span", { class: "soft small" }, "was there before")
        : h("span", {
            class: `span ${state} ${r.step ? "thin" : ""}`,
            style: { left: `${left}%`, width: `${Math.max(0.4, right - left)}%` },
          }),
      !r.end && h("span", { class: "quiet" }, `not done: ${humanize(r.reason)}`),
    ),
    h("td", { class: "number" }, early ? "" : [!r.end && icon(state), " ", took]),
  );
}
