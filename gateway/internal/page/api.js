// What the stream does not contain is requested when it is shown, and again
// when the stream says that it has changed.
import { h } from "./dom.js";
import { connection } from "./connection.js";
import { notify } from "./store.js";

// minInterval is the least time between two requests for the same path, in milliseconds.
const minInterval = 4000;
// answerTimeout is how long a request may take, in milliseconds. The gateway waits half as long for the database and the Kubernetes API.
// Without it, a request to a gateway that has vanished would keep its view from asking the next gateway.
const answerTimeout = 60_000;
const mostKept = 40;
const kept = new Map();

// fetchAnswer sends a request that fails if its answer does not come in time.
export const fetchAnswer = (path) => fetch(path, { signal: AbortSignal.timeout(answerTimeout) });

// requestData returns the answer for a path: {data, error, loading}. It sends a request when stamp is other than in the
// last call. Until the new answer arrives, it returns the old one.
export function requestData(path, stamp) {
  let entry = kept.get(path);
  if (!entry) {
    entry = { data: undefined, error: "", loading: false, stamp: undefined, at: 0, timer: 0 };
    kept.set(path, entry);
    if (kept.size > mostKept) kept.delete(kept.keys().next().value);
  }
  if (entry.stamp !== stamp && !entry.loading && !entry.timer && connection.state !== "login") {
    const wait = Math.max(0, entry.at + minInterval - Date.now());
    if (wait === 0) fetchInto(entry, path, stamp);
    else
      entry.timer = setTimeout(() => {
        entry.timer = 0;
        notify("answer");
      }, wait);
  }
  return entry;
}

async function fetchInto(entry, path, stamp) {
  entry.loading = true;
  entry.at = Date.now();
  try {
    const answer = await fetchAnswer(path);
    const body = await answer.json();
    if (answer.ok) {
      entry.data = body;
      entry.total = answer.headers.get("X-Total-Count");
      entry.next = /<([^>]+)>; rel="next"/.exec(answer.headers.get("Link") ?? "")?.[1];
      entry.error = "";
      entry.stamp = stamp;
    } else if (answer.status === 429 || answer.status === 503) {
      // A user who opens many views in a short time only waits.
      entry.error = answer.status === 429 ? "" : body.detail;
      entry.timer = setTimeout(
        () => {
          entry.timer = 0;
          notify("answer");
        },
        1000 * (Number(answer.headers.get("Retry-After")) || 5),
      );
    } else {
      entry.error = body.detail ?? `The gateway answers ${answer.status}.`;
      entry.stamp = stamp;
    }
  } catch {
    entry.error = "The gateway cannot be reached. What is shown comes back with the connection.";
    entry.timer = setTimeout(() => {
      entry.timer = 0;
      notify("answer");
    }, minInterval);
  }
  entry.loading = false;
  notify("answer");
}

// retry asks again at once.
export function retry(path) {
  const entry = kept.get(path);
  if (!entry) return;
  clearTimeout(entry.timer);
  Object.assign(entry, { timer: 0, stamp: undefined, at: 0, error: "" });
  notify("answer");
}

// renderAnswer renders an answer: as loading, as failed, or by draw.
export function renderAnswer(path, entry, draw) {
  const parts = [];
  if (entry.error) {
    parts.push(
      h(
        "p",
        { class: "note bad" },
        entry.error,
        " ",
        h("button", { type: "button", class: "small", onclick: () => retry(path) }, "Try again"),
      ),
    );
  }
  if (entry.data !== undefined) parts.push(draw(entry.data));
  else if (!entry.error) parts.push(h("p", { class: "note" }, "Loading …"));
  return parts;
}
