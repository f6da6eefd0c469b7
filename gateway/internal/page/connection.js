// The connection keeps the stream open. It goes on where it was after a cut, and
// always knows the age of the displayed data.
import { clear, handlers, isReceiving, notify, streamState, topics } from "./store.js";
import { setClock, span } from "./format.js";

// missedHeartbeats is the number of intervals of heartbeats without a message after which the connection counts as dead.
const missedHeartbeats = 2;
// missedInSnapshot is the same for a snapshot that is not complete, because a slow connection needs a while for each frame of it.
const missedInSnapshot = 6;
const longestWait = 15_000;
// attemptTimeout is how long an attempt may take, in milliseconds.
const attemptTimeout = 8_000;
// hiddenFor is how long a hidden page keeps its connection: a browser has few.
const hiddenFor = 60_000;

export const connection = {
  // state is one of connecting, live, reconnecting, closed and login.
  state: "connecting",
  // lastMessageAt is when the last message of the gateway arrived, attemptAt when the present attempt started, and retryAt when the next
  // one starts.
  lastMessageAt: 0,
  attemptAt: 0,
  retryAt: 0,
  // why says in words what is wrong.
  why: "",
  session: null,
  resumed: 0,
  fresh: 0,
};

let source = null;
let lastID = "";
let heartbeat = 4;
let failures = 0;
let timer = 0;

function setState(state, why = "") {
  if (connection.state === state && connection.why === why) return;
  connection.state = state;
  connection.why = why;
  notify("connection");
}

function streamPath() {
  const query = new URLSearchParams({ topics: ["summary", "events", ...topics].join(",") });
  if (lastID) query.set("lastEventId", lastID);
  return `/api/v1/stream?${query}`;
}

export function connect() {
  clearTimeout(timer);
  source?.close();
  const opened = new EventSource(streamPath());
  source = opened;
  connection.attemptAt = Date.now();
  for (const name of Object.keys(handlers)) {
    opened.addEventListener(name, (e) => {
      if (opened === source) receive(name, e);
    });
  }
  opened.onerror = () => {
    if (opened === source) disconnect();
  };
}

function receive(name, e) {
  connection.lastMessageAt = Date.now();
  if (e.lastEventId) lastID = e.lastEventId;
  const data = e.data ? JSON.parse(e.data) : {};
  if (name === "hello" || name === "heartbeat") setClock(data.serverTime);
  if (name === "hello") {
    heartbeat = data.heartbeatSeconds || heartbeat;
    failures = 0;
    if (data.resumed) connection.resumed++;
    else connection.fresh++;
  }
  handlers[name](data);
  if (name === "shutdown") disconnect("The gateway is restarting.");
  else setState("live");
}

// disconnect ends a connection that does not work, and tries again later.
function disconnect(why = "") {
  source?.close();
  source = null;
  const wait = Math.min(longestWait, 500 * 2 ** failures++) * (0.75 + Math.random() / 2);
  reconnectIn(wait, why || connection.why || "The connection to the gateway was cut.");
  if (!why) explain();
}

// fetchInTime sends a request that fails if the gateway does not answer in time.
const fetchInTime = (path) => fetch(path, { signal: AbortSignal.timeout(attemptTimeout) });

// explain finds out why there is no connection.
async function explain() {
  try {
    const answer = await fetchInTime("/api/v1/session");
    const session = await answer.json();
    if (connection.state !== "reconnecting") return;
    if (!answer.ok) {
      reconnectIn(1000 * (Number(answer.headers.get("Retry-After")) || 5), `The gateway refuses the connection: ${session.detail}.`);
      return;
    }
    if (session.required && !session.name) {
      forgetSession(connection.session?.name ? "The session has ended, or the key is not valid any more." : "");
      return;
    }
    connection.session = session;
    const ready = await (await fetchInTime("/ready")).json();
    if (connection.state !== "reconnecting") return;
    if (ready.status === "starting") setState("reconnecting", starting(ready.waiting));
    else if (failures > 2) {
      const why = await streamRefusal();
      if (connection.state === "reconnecting") setState("reconnecting", why);
    }
  } catch {
    if (connection.state === "reconnecting") setState("reconnecting", "The gateway cannot be reached. Check that it runs, and your network.");
  }
}

// streamRefusal requests the stream once and returns why it is refused, because an EventSource does not show the answer.
async function streamRefusal() {
  const ended = new AbortController();
  const signal = AbortSignal.any([ended.signal, AbortSignal.timeout(attemptTimeout)]);
  const answer = await fetch(streamPath(), { signal });
  if (answer.ok) {
    ended.abort();
    return "The gateway answers, but the live connection is cut. Check the proxies between this page and the gateway.";
  }
  const { detail = `it answers ${answer.status}` } = await answer.json().catch(() => ({}));
  switch (answer.status) {
    case 400:
      return `The gateway has another release than this page. Reload the page. The gateway says: ${detail}.`;
    case 429:
      return `The gateway refuses the live connection: ${detail}. Close other tabs of this page.`;
    default:
      return `The gateway refuses the live connection: ${detail}.`;
  }
}

// reconnectIn plans the next attempt, after wait milliseconds.
function reconnectIn(wait, why) {
  clearTimeout(timer);
  connection.retryAt = Date.now() + wait;
  timer = setTimeout(connect, wait);
  setState("reconnecting", why);
}

const unanswered = "The gateway accepts the connection, and does not answer. Read its log, and restart it if it hangs.";
const starting = (waiting) =>
  `The gateway is starting${waiting?.length ? `, and reads ${waiting.join(", ")} from the Kubernetes API` : ""}.`;

// age returns the age of the displayed data in seconds.
export const dataAge = () => (connection.lastMessageAt ? (Date.now() - connection.lastMessageAt) / 1000 : 0);

// summary is the connection in a few words, and how good that is.
export function summary() {
  const old = dataAge();
  switch (connection.state) {
    case "live":
      return { state: "good", text: "Live", detail: `Connected. Last heard of ${span(old)} ago.` };
    case "connecting":
      return { state: "wait", text: "Connecting", detail: "Waits for the gateway." };
    case "login":
      return { state: "act", text: "Key needed", detail: "Log in with an API key." };
    default:
      if (!streamState.synced) return { state: "bad", text: "Not connected", detail: connection.why };
      return {
        state: old > heartbeat * missedHeartbeats ? "bad" : "wait",
        text: old > heartbeat * missedHeartbeats ? "Old data" : "Reconnecting",
        detail: connection.why,
      };
  }
}

// watchConnection ends a connection without messages, and an attempt without an answer. A hidden page gives up its connection.
export function watchConnection() {
  setInterval(() => {
    if (connection.state === "live") {
      if (dataAge() > heartbeat * (isReceiving() ? missedInSnapshot : missedHeartbeats)) disconnect("The gateway does not respond.");
    } else if (source && Date.now() - connection.attemptAt > attemptTimeout) disconnect(unanswered);
    if (connection.state !== "live") notify("connection");
  }, 1000);
  let hidden = 0;
  document.addEventListener("visibilitychange", () => {
    clearTimeout(hidden);
    if (document.hidden) hidden = setTimeout(disconnectHidden, hiddenFor);
    else if (!source && connection.state !== "login") connect();
  });
  addEventListener("online", () => source || connection.state === "login" || connect());
}

// disconnectHidden ends the connection of a hidden page. A page that asks for a key has none, and keeps what the user has written.
function disconnectHidden() {
  if (connection.state === "login") return;
  clearTimeout(timer);
  source?.close();
  source = null;
  setState("reconnecting", "The page was in the background.");
}

// start finds out whether a key is needed, and connects.
export async function start() {
  try {
    const answer = await fetchInTime("/api/v1/session");
    if (answer.ok) connection.session = await answer.json();
    notify("connection");
    if (connection.session?.required && !connection.session.name) {
      setState("login");
      return;
    }
  } catch {
    // The stream delivers the same data later.
  }
  connect();
}

export async function login(key) {
  const answer = await fetch("/api/v1/session", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ key }),
  });
  if (!answer.ok) {
    const problem = await answer.json().catch(() => ({}));
    const advice = answer.status === 401 ? " Check that it is the whole key, and that it has not been removed." : "";
    throw new Error(`${problem.detail ?? `The gateway answers ${answer.status}.`}${advice}`);
  }
  setState("connecting");
  await start();
}

// logout ends the session. A gateway that requires no key still shows what anyone may read. It fails unless the gateway has deleted the cookie,
// which scripts cannot.
export async function logout() {
  const answer = await fetch("/api/v1/session", { method: "DELETE" }).catch(() => undefined);
  if (!answer?.ok) throw new Error(`You are still logged in: ${answer ? `the gateway answers ${answer.status}` : "the gateway cannot be reached"}. Log out again later.`);
  if (connection.session?.required) forgetSession();
  else await start();
}

// forgetSession forgets all data, and asks for a key.
function forgetSession(why = "") {
  clearTimeout(timer);
  source?.close();
  source = null;
  lastID = "";
  connection.session = { required: true };
  clear();
  setState("login", why);
}
