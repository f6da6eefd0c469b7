// The details of an object: its conditions, and the events of the stack and of Kubernetes about it.
import { h, icon } from "./dom.js";
import { renderAnswer, requestData } from "./api.js";
import { moment, plural } from "./format.js";
import { aboutReason, assess } from "./advice.js";
import { badWhenTrue, conditionText, eventText, humanize } from "./texts.js";

const mostShown = 60;

// conditionList describes conditions: what does not need attention first, Ready last.
export function conditionList(list = []) {
  if (list.length === 0)
    return h("p", { class: "empty" }, "No conditions yet. If this lasts more than a minute, the platform team checks that the function for this layer runs.");
  const sorted = [...list].sort(
    (a, b) =>
      Number(a.type === "Ready") - Number(b.type === "Ready") ||
      (a.status === b.status ? a.lastTransitionTime.localeCompare(b.lastTransitionTime) : a.status === "True" ? -1 : 1),
  );
  return h("ol", { class: "conditions plain" }, sorted.map(condition));
}

function condition(c) {
  const good = (c.status === "True") !== badWhenTrue.includes(c.type);
  const state = good && c.status !== "Unknown" ? "good" : assess({ reason: c.reason, ready: false }).state;
  const detail = good && c.status === "True" ? c.message : [humanize(c.reason), c.message].filter(Boolean).join(": ");
  return h(
    "li",
    { key: c.type },
    icon(state),
    h(
      "div",
      {},
      h(
        "p",
        {},
        h("strong", {}, conditionText(c.type, c.status)),
        " ",
        h("span", { class: "soft small" }, h("time", { datetime: c.lastTransitionTime }, moment(c.lastTransitionTime))),
      ),
      detail && h("p", { class: "soft small" }, detail),
      !good && c.advice && h("p", { class: "small" }, `${c.advice} `, h("span", { class: "soft" }, `(${c.owner})`), " ", aboutReason(c.reason)),
    ),
  );
}

// requestDetails asks for the conditions and the Kubernetes Events of an object.
export function requestDetails(item) {
  const path = `/api/v1/objects/${item.id}`;
  // Kubernetes Events change without a change of the object, so they are read again each minute.
  return [path, requestData(path, `${item.phase}${item.ready}${item.since}${item.reason}${item.lastUpdated}${Math.floor(Date.now() / 60_000)}`)];
}

// requestEvents asks for the stack's own events about an object.
export function requestEvents(item) {
  const path = `/api/v1/events?uid=${encodeURIComponent(item.id)}&limit=40`;
  return [path, requestData(path, `${item.phase}${item.ready}${item.since}${item.reason}${item.lastUpdated}`)];
}

// eventList describes the events of several answers in one list, the newest first. Each answer is [path, what was answered].
export function eventList(answers) {
  const parts = answers.map(([path, answer]) => renderAnswer(path, answer, () => ""));
  const all = answers.flatMap(([, answer]) => [...(answer.data?.events ?? [])].map(answer.data?.conditions ? ofKubernetes : ofStack));
  all.sort((a, b) => b.time.localeCompare(a.time));
  const partial = answers.map(([, answer]) => answer.data?.partial).filter(Boolean);
  return [
    parts,
    partial.map((text) => h("p", { class: "note", key: text }, text)),
    all.length === 0
      ? answers.every(([, answer]) => answer.data) && h("p", { class: "empty" }, "No events yet. They come with each change of the object; Kubernetes keeps its own for an hour.")
      : h("ol", { class: "plain history" }, all.slice(0, mostShown).map(line)),
    all.length > mostShown && h("p", { class: "soft small" }, `The newest ${mostShown} of ${plural(all.length, "event")}.`),
  ];
}

const ofStack = (e) => {
  const change = (e.data?.changes ?? []).find((c) => /phase$/.test(c.path));
  return { time: e.time, what: eventText(e.type), who: e.name, detail: change ? `${change.from ?? "nothing"} → ${change.to ?? "nothing"}` : "" };
};

const ofKubernetes = (e) => ({
  time: e.lastTime,
  what: humanize(e.reason),
  warning: e.type === "Warning",
  who: [e.source, e.count > 1 && `${e.count} times since ${moment(e.firstTime)}`].filter(Boolean).join(", "),
  detail: e.message,
});

const line = (e) =>
  h(
    "li",
    {},
    h("time", { datetime: e.time, title: e.time }, moment(e.time)),
    " ",
    e.warning && [icon("act"), h("span", { class: "quiet" }, "Warning: ")],
    e.what,
    " ",
    h("span", { class: "soft" }, [e.who, e.detail].filter(Boolean).join(": ")),
  );
