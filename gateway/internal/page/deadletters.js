// The dead letters: events that a function or a receiver did not accept. They can be filtered, sent again, and discarded.
import { h, link } from "./dom.js";
import { count, moment, plural } from "./format.js";
import { renderAnswer, requestData, retry } from "./api.js";
import { connection, login } from "./connection.js";
import { searchForm } from "./grid.js";
import { href, setQuery } from "./router.js";
import { feed, notify, streamState } from "./store.js";
import { eventText } from "./texts.js";

const pageSize = 50;
// mostShown is the largest limit of a request.
const mostShown = 1000;
// view has the action that waits for a confirmation, what has been removed, and what went wrong, by sequence.
const view = { wanted: null, busy: false, gone: new Set(), errors: new Map(), keyError: "", progress: "", done: "" };

// receiverOf is the function of a destination, or the name of a webhook's endpoint.
export const receiverOf = (destination) => /\/\/([a-z-]+)/.exec(destination ?? "")?.[1] ?? (destination || "its receiver");

// deadLettersStamp changes when the list may have changed.
export const deadLettersStamp = () => `${streamState.gaps}.${feed.filter((e) => e.knativeerrordest).length}`;

const actions = {
  resend: {
    verb: "Send again",
    question: (n) => `Send ${n} again? The receiver gets each event once more, and the dead letters are removed.`,
    done: (n) => `Sent ${n} again. Each that is refused again comes back here.`,
    request: (sequence) => fetch(`/api/v1/dead-letters/${sequence}/resend`, { method: "POST" }),
  },
  discard: {
    verb: "Discard",
    question: (n) => `Discard ${n}? Discarded events are deleted from the history and cannot be sent again.`,
    done: (n) => `Discarded ${n}.`,
    request: (sequence) => fetch(`/api/v1/dead-letters/${sequence}`, { method: "DELETE" }),
  },
};

const mayWrite = () => connection.session?.scopes?.includes("write");

// perform acts on letters one after the other, and waits while the gateway limits requests. It stops at the first letter that is refused, and
// when the user stops it or leaves the view.
async function perform(path) {
  const wanted = view.wanted;
  const { act, letters } = wanted;
  view.busy = true;
  view.errors.clear();
  view.done = "";
  let n = 0;
  while (n < letters.length && view.wanted === wanted) {
    const { sequence } = letters[n];
    const progress = `${n} of ${letters.length} are done.`;
    setProgress(progress);
    const answer = await actions[act].request(sequence).catch(() => undefined);
    if (answer?.status === 429) {
      const seconds = Number(answer.headers.get("Retry-After")) || 5;
      setProgress(`${progress} The gateway limits requests: the next one follows in ${seconds} s.`);
      await new Promise((done) => setTimeout(done, 1000 * seconds));
      continue;
    }
    const refusal = answer ? await refusalOf(answer) : "The gateway cannot be reached. Nothing has changed.";
    if (refusal) {
      view.errors.set(sequence, `${actions[act].verb} failed: ${refusal}`);
      break;
    }
    view.gone.add(sequence);
    n++;
  }
  if (n > 0) view.done = actions[act].done(plural(n, "dead letter"));
  if (view.wanted === wanted) view.wanted = null;
  view.busy = false;
  retry(path);
  notify("answer");
}

function setProgress(text) {
  view.progress = text;
  notify("answer");
}

async function refusalOf(answer) {
  if (answer.ok) return "";
  const problem = await answer.json().catch(() => ({}));
  return problem.detail ?? `The gateway answers ${answer.status}.`;
}

function want(act, letters) {
  view.wanted = { act, letters };
  view.errors.clear();
  view.done = "";
  notify("answer");
  queueMicrotask(() => requestAnimationFrame(() => document.querySelector(".confirm button, .confirm input")?.focus()));
}

function cancel() {
  view.wanted = null;
  view.keyError = "";
  notify("answer");
}

// confirmation asks whether to act, and for a key that may write if the session has none.
function confirmation(path) {
  const { act, letters } = view.wanted;
  const name = letters.length === 1 ? `the dead letter of ${nameOf(letters[0])}` : plural(letters.length, "dead letter");
  if (!mayWrite()) return keyForm();
  return h(
    "div",
    { class: "note wait confirm", role: "group", "aria-label": "Confirmation" },
    h("p", {}, actions[act].question(name)),
    h(
      "div",
      { class: "buttons" },
      h("button", { type: "button", class: "primary", disabled: view.busy, onclick: () => perform(path) }, actions[act].verb),
      h("button", { type: "button", onclick: cancel }, view.busy ? "Stop" : "Cancel"),
    ),
    view.busy && letters.length > 1 && h("p", { role: "status" }, view.progress),
  );
}

// keyForm asks for a key of the scope write. The session in the browser keeps it, as after a login.
function keyForm() {
  const have = connection.session?.name ? ` ${connection.session.name} may not write.` : "";
  return h(
    "form",
    {
      class: "login confirm",
      onsubmit: async (e) => {
        e.preventDefault();
        const field = e.target.elements.key;
        view.keyError = "";
        try {
          await login(field.value.trim());
          if (!mayWrite()) view.keyError = `${connection.session?.name ?? "The key"} lacks the scope write.`;
        } catch (err) {
          view.keyError = err.message;
        }
        field.value = "";
        notify("answer");
      },
    },
    h("p", {}, `This change needs an API key with the scopes read and write.${have} Ask the platform team for a key.`),
    h("label", { for: "write-key" }, "API key"),
    h("input", { type: "password", id: "write-key", name: "key", required: true, autocomplete: "current-password", "aria-invalid": view.keyError ? "true" : undefined }),
    view.keyError && h("p", { class: "note bad", role: "alert" }, view.keyError),
    h("div", { class: "buttons" }, h("button", { type: "submit", class: "primary" }, "Log in"), h("button", { type: "button", onclick: cancel }, "Cancel")),
  );
}

const nameOf = (l) => l.name || l.subject || l.id;

// deadLetter describes one dead letter, with further content below it.
export const deadLetter = (l, ...more) =>
  h(
    "li",
    { key: l.sequence },
    h(
      "details",
      {},
      h(
        "summary",
        {},
        h("time", { datetime: l.time }, moment(l.time)),
        " ",
        h("strong", {}, nameOf(l)),
        " ",
        h("span", { class: "soft" }, `${receiverOf(l.destination)} answered ${l.code || "nothing"}`),
      ),
      h("p", {}, l.error || "No error message."),
      h("pre", { tabindex: "0" }, JSON.stringify({ type: l.type, source: l.source, subject: l.subject, id: l.id, destination: l.destination, data: l.data }, null, 2)),
    ),
    more,
  );

function editable(l, path) {
  const mine = view.wanted?.letters.length === 1 && view.wanted.letters[0].sequence === l.sequence;
  const name = nameOf(l);
  return deadLetter(
    l,
    mine
      ? confirmation(path)
      : h(
          "div",
          { class: "buttons" },
          Object.entries(actions).map(([act, { verb }]) =>
            h("button", { key: act, type: "button", class: "small", "aria-label": `${verb}: ${name}`, onclick: () => want(act, [l]) }, verb),
          ),
        ),
    view.errors.has(l.sequence) && h("p", { class: "note bad", role: "alert" }, view.errors.get(l.sequence)),
  );
}

// choice is a select of a parameter, with the values of the letters that are listed.
const choice = (query, name, title, values, show = (v) => v) =>
  h(
    "label",
    { class: "field" },
    h("span", {}, title),
    h(
      "select",
      { value: query.get(name) ?? "", onchange: (e) => setQuery({ [name]: e.target.value }) },
      h("option", { value: "" }, "all"),
      [...new Set([...values, query.get(name)].filter(Boolean))].sort().map((v) => h("option", { key: v, value: v }, show(v))),
    ),
  );

export const deadLettersView = {
  title: () => "Dead letters",
  leave() {
    Object.assign(view, { wanted: null, keyError: "", done: "" });
    view.errors.clear();
  },
  draw({ query }) {
    const limit = Math.min(Number(query.get("limit")) || pageSize, mostShown);
    const asked = new URLSearchParams({ limit: String(limit) });
    for (const name of ["q", "namespace", "destination", "type"]) if (query.get(name)) asked.set(name, query.get(name));
    const path = `/api/v1/dead-letters?${asked}`;
    const answer = requestData(path, deadLettersStamp());
    const letters = (answer.data?.deadLetters ?? []).filter((l) => !view.gone.has(l.sequence));
    const many = view.wanted && view.wanted.letters.length > 1;
    const filtered = ["q", "namespace", "destination", "type"].some((name) => query.get(name));
    return [
      h("h1", { tabindex: "-1" }, "Dead letters ", h("small", {}, answer.total ? count(Number(answer.total)) : "")),
      h("p", { class: "soft" }, "Objects of the stack are not affected: resync reconciles them. A webhook, a ticketing system or an IPAM misses the event until it is sent again: answers of these by their sender, all others here."),
      searchForm(
        "Dead letters",
        "name, error, identifier …",
        query,
        choice(query, "destination", "Receiver", letters.map((l) => l.destination), receiverOf),
        choice(query, "namespace", "Namespace", letters.map((l) => l.namespace)),
        choice(query, "type", "Kind", letters.map((l) => l.type), eventText),
        letters.length > 1 &&
          Object.entries(actions).map(([act, { verb }]) =>
            h("button", { key: act, type: "button", onclick: () => want(act, letters) }, `${verb}: all ${count(letters.length)} shown`),
          ),
      ),
      many && confirmation(path),
      view.done && h("p", { class: "note", role: "status" }, view.done),
      renderAnswer(path, answer, () =>
        letters.length === 0
          ? h("p", { class: "empty" }, filtered ? "No dead letter matches." : "No dead letters: every event was accepted.")
          : h("ul", { class: "plain letters" }, letters.map((l) => editable(l, path))),
      ),
      answer.next &&
        (limit < mostShown
          ? h("button", { type: "button", onclick: () => setQuery({ limit: String(limit + pageSize) }) }, "Show older ones")
          : h("p", { class: "soft" }, `The newest ${count(mostShown)} are shown. Search to find others.`)),
      h("p", { class: "soft small" }, link(href("events"), "All events")),
    ];
  },
};
