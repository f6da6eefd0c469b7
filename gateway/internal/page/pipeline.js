// The pipeline is five lanes, one for each layer: objects in progress on top, and below them
// those that have recently become ready, with the time that it took.
import { badge, h, icon, link } from "./dom.js";
import { count, plural, quantile, since, span, whole } from "./format.js";
import { renderAnswer, requestData } from "./api.js";
import { href, to } from "./router.js";
import { deadLetter, deadLettersStamp } from "./deadletters.js";
import { all, brokenOf, derive, hasJustChanged, streamState } from "./store.js";
import { sinceOf } from "./causes.js";
import { stuckAndHeld } from "./problems.js";
import { assess } from "./advice.js";
import { layers } from "./kinds.js";
import { humanize } from "./texts.js";

const most = { moving: 8, stuck: 5, held: 3, done: 8 };
// recent is how long an object counts as recently ready, in seconds.
const recent = 900;

// secondsUntilReady is how long an item needed from its creation until it was ready.
const secondsUntilReady = (i) => (i.ready && i.since && i.createdAt ? Math.max(0, (Date.parse(i.since) - Date.parse(i.createdAt)) / 1000) : undefined);

const laneTimes = new Map(
  layers.map((l) => [
    l.number,
    derive(l.topics, () =>
      l.topics
        .flatMap(all)
        .map(secondsUntilReady)
        .filter((t) => t !== undefined)
        .sort((a, b) => a - b),
    ),
  ]),
);

export const pipeline = {
  title: () => "Pipeline",
  draw() {
    const standing = stuckAndHeld();
    return [
      h("h1", { tabindex: "-1" }, "Pipeline"),
      h(
        "div",
        { class: "lanes" },
        layers.map((l) => lane(l, standing)),
      ),
      h("div", { class: "two" }, deliveries(), deadLetters()),
    ];
  },
};

function lane(layer, standing) {
  const stateOf = (item) => {
    if (item.ready) return "good";
    const own = assess(item).state;
    return { held: "held", stuck: own === "bad" ? "bad" : "act" }[standing.get(item.id)] ?? own;
  };
  const items = [
    ...layer.topics.flatMap((topic) => all(topic).map((item) => ({ item, topic, state: stateOf(item) }))),
    ...(layer.also ?? []).flatMap((topic) =>
      all(topic)
        .filter((item) => standing.get(item.id) === "stuck")
        .map((item) => ({ item, topic, state: stateOf(item) })),
    ),
  ];
  const of = (...states) =>
    items.filter((x) => states.includes(x.state)).sort((a, b) => (b.item.createdAt ?? "").localeCompare(a.item.createdAt ?? ""));
  const moving = of("wait");
  const stuck = of("bad", "act");
  const waiting = of("held");
  const open = [...moving, ...stuck, ...waiting];
  const done = items
    .filter((x) => x.item.ready && layer.number < 5 && since(sinceOf(x.item)) < recent)
    .sort((a, b) => sinceOf(b.item).localeCompare(sinceOf(a.item)));
  const ready = items.filter((x) => x.item.ready).length;
  const shown = [...moving.slice(0, most.moving), ...stuck.slice(0, most.stuck), ...waiting.slice(0, most.held)];
  const times = laneTimes.get(layer.number)();
  return h(
    "section",
    { class: "lane", key: layer.number, "aria-labelledby": `lane-${layer.number}` },
    h(
      "header",
      {},
      h("h2", { id: `lane-${layer.number}` }, h("span", { class: "number" }, layer.number), layer.name),
      h("p", { class: "soft small" }, layer.does),
      h("p", { class: "lane-count" }, h("strong", {}, count(ready)), ` of ${count(items.length)} ready`),
      h(
        "p",
        { class: "soft small" },
        times.length && layer.number < 5
          ? `usually ${span(quantile(times, 0.5))}, slowest ${span(times.at(-1))}`
          : layer.number < 5
            ? "no times yet"
            : plural(all("hosts").length, "node"),
      ),
      h(
        "p",
        { class: "marks" },
        brokenOf(layer).map((f) => badge("bad", `${f.name} does not run`)),
        moving.length > 0 && badge("wait", `${count(moving.length)} in progress`),
        stuck.length > 0 && badge("act", `${count(stuck.length)} stuck`),
        waiting.length > 0 && badge("idle", `${count(waiting.length)} blocked`),
        open.length === 0 && badge(items.length ? "good" : "idle", items.length ? "all ready" : "empty"),
      ),
    ),
    shown.length > 0 && h("ul", { class: "plain" }, shown.map(objectInProgress)),
    open.length > shown.length && h("p", { class: "soft small" }, `and ${count(open.length - shown.length)} more`),
    done.length > 0 && h("h3", { class: "soft" }, "Recently ready"),
    done.length > 0 && h("ul", { class: "plain done" }, done.slice(0, most.done).map(finishedObject)),
    items.length === 0 && h("p", { class: "soft small" }, "No objects yet."),
  );
}

function objectInProgress({ item, topic, state }) {
  return h(
    "li",
    { key: item.id, class: `mover ${state} ${hasJustChanged(item.id) ? "fresh" : ""}` },
    h(
      "span",
      { class: "row" },
      link(to(topic, item), item.name),
      h("span", { class: "soft time" }, item.createdAt ? whole(since(item.createdAt)) : ""),
    ),
    h(
      "span",
      { class: "small" },
      icon(state === "held" ? "idle" : state),
      " ",
      state === "held" ? "blocked: " : "",
      humanize(item.reason) || item.phase,
    ),
    item.message && ["bad", "act"].includes(state) && h("span", { class: "soft small clamp" }, item.message),
  );
}

const finishedObject = ({ item, topic }) =>
  h(
    "li",
    { key: item.id, class: `row ${hasJustChanged(item.id) ? "fresh" : ""}` },
    link(to(topic, item), item.name),
    h("span", { class: "soft time" }, secondsUntilReady(item) === undefined ? "" : span(secondsUntilReady(item))),
  );

// deliveries is how the functions get on with their events.
function deliveries() {
  const names = Object.keys(streamState.deliveries).sort();
  return h(
    "section",
    { "aria-labelledby": "deliveries-title" },
    h("h2", { id: "deliveries-title" }, "Deliveries"),
    names.length === 0
      ? h("p", { class: "empty" }, "No delivery metrics yet. Functions report about 10 s after their first event.")
      : h(
          "table",
          { class: "lines" },
          h("caption", { class: "quiet" }, "Events delivered to each function"),
          h(
            "thead",
            {},
            h(
              "tr",
              {},
              ["Function", "Delivered", "Retrying", "Failed"].map((t, n) => h("th", { scope: "col", class: n ? "number" : "" }, t)),
            ),
          ),
          h(
            "tbody",
            {},
            names.map((name) => {
              const n = streamState.deliveries[name];
              return h(
                "tr",
                { key: name },
                h("th", { scope: "row" }, name),
                h("td", { class: "number" }, count(n.done)),
                h("td", { class: "number" }, count(n.retry)),
                h("td", { class: "number" }, n.failed ? badge("act", count(n.failed)) : "0"),
              );
            }),
          ),
        ),
    h("p", { class: "soft small" }, "The Broker redelivers an event that a function did not accept. After the last attempt it becomes a dead letter."),
  );
}

function deadLetters() {
  const path = "/api/v1/dead-letters?limit=20";
  const answer = requestData(path, deadLettersStamp());
  return h(
    "section",
    { "aria-labelledby": "letters-title" },
    h("h2", { id: "letters-title" }, "Dead letters ", h("small", {}, answer.total ? count(Number(answer.total)) : "")),
    renderAnswer(path, answer, ({ deadLetters: letters }) =>
      letters.length === 0
        ? h("p", { class: "empty" }, "No dead letters.")
        : [
            h("ul", { class: "plain letters" }, letters.map((l) => deadLetter(l))),
            h("p", {}, link(href("dead-letters"), "Filter, send again or discard dead letters")),
          ],
    ),
    h("p", { class: "soft small" }, "Objects of the stack are not affected: resync reconciles them. Other systems miss the event until it is sent again. ", link(href("events"), "All events")),
  );
}
