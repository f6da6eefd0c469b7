// The page keeps what the stream tells in one map for each topic, and draws from
// those. A snapshot is put in place as a whole when it is complete.
const shownPerLane = 40;
const topics = ["networks", "addresses", "machines", "clusters", "operators", "providers", "hosts"];
let state = new Map(topics.map((t) => [t, new Map()]));
let incoming = null;
let paused = false;
let lastHeard = 0;
const changed = new Set();
const news = [];

const connection = document.getElementById("connection");
const connectionText = document.getElementById("connection-text");

function say(name, text) {
  connection.dataset.state = name;
  if (connectionText.textContent !== text) connectionText.textContent = text;
}

function listen() {
  const source = new EventSource("/api/v1/stream?topics=summary,events," + topics.join(","));
  const on = (name, handle) => source.addEventListener(name, (e) => {
    lastHeard = Date.now();
    say("live", "Live");
    handle(e.data ? JSON.parse(e.data) : {});
  });
  on("hello", (hello) => { if (!hello.resumed) incoming = new Map(topics.map((t) => [t, new Map()])); });
  on("snapshot", ({ topic, part, items }) => {
    incoming ??= new Map(topics.map((t) => [t, new Map()]));
    if (part === 0) incoming.get(topic).clear();
    for (const item of items) incoming.get(topic).set(item.id, item);
  });
  on("synced", () => { if (incoming) { state = incoming; incoming = null; draw(); } });
  on("patch", ({ topic, upserts, removes }) => {
    for (const item of upserts) {
      const before = state.get(topic).get(item.id);
      if (before?.phase !== item.phase) news.push(`${item.name}: ${item.phase}`);
      state.get(topic).set(item.id, item);
      changed.add(item.id);
    }
    for (const id of removes) state.get(topic).delete(id);
    draw();
  });
  on("event", (event) => { showEvent(event); });
  on("summary", () => {});
  on("heartbeat", () => {});
  on("shutdown", () => { say("waiting", "The gateway is restarting"); });
  source.onerror = () => {
    say("waiting", "Reconnecting");
    if (source.readyState === EventSource.CLOSED) setTimeout(listen, 3000);
  };
}

function age(since) {
  const seconds = Math.max(0, Math.round((Date.now() - new Date(since)) / 1000));
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return `${Math.round(seconds / 3600)} h`;
}

function element(name, properties, ...children) {
  const e = Object.assign(document.createElement(name), properties);
  e.append(...children);
  return e;
}

const order = (a, b) => Number(a.ready) - Number(b.ready) || (a.since ?? "").localeCompare(b.since ?? "") || a.name.localeCompare(b.name);

function entry(item) {
  const li = element("li", {}, element("span", { className: "name", textContent: (item.namespace ? item.namespace + "/" : "") + item.name }),
    " ", element("span", { className: "phase", textContent: item.phase }));
  li.dataset.id = item.id;
  li.dataset.ready = item.ready;
  li.dataset.status = item.status;
  if (!item.ready && (item.reason || item.message)) li.append(element("span", { className: "why", textContent: [item.reason, item.message].filter(Boolean).join(": ") }));
  if (changed.has(item.id)) li.className = "changed";
  return li;
}

let drawing = false;
function draw() {
  if (drawing || paused) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    for (const lane of document.querySelectorAll(".lane")) {
      const items = lane.dataset.topics.split(" ").flatMap((t) => [...state.get(t).values()]).sort(order);
      const waiting = items.filter((i) => !i.ready).length;
      lane.querySelector(".count").textContent = `${items.length} in all, ${waiting} waiting`;
      const shown = items.slice(0, shownPerLane).map(entry);
      if (items.length > shownPerLane) shown.push(element("li", { className: "empty", textContent: `and ${items.length - shownPerLane} more` }));
      lane.querySelector("ul").replaceChildren(...shown);
    }
    const stuck = topics.flatMap((t) => [...state.get(t).values()]).filter((i) => !i.ready).sort((a, b) => (a.since ?? "").localeCompare(b.since ?? ""));
    const list = stuck.slice(0, 20).map((i) => element("li", {}, element("span", { className: "name", textContent: i.name }), ` ${i.phase}`,
      i.since ? ` for ${age(i.since)}` : "", element("span", { className: "why", textContent: [i.reason, i.message].filter(Boolean).join(": ") || "no reason given yet" })));
    document.getElementById("attention").replaceChildren(...(list.length ? list : [element("li", { className: "empty", textContent: "Nothing is waiting." })]));
    changed.clear();
  });
}

function showEvent(event) {
  const list = document.getElementById("events");
  list.querySelector(".empty")?.remove();
  const when = new Date(event.time ?? Date.now());
  list.prepend(element("li", {}, element("time", { dateTime: when.toISOString(), textContent: when.toLocaleTimeString() }), ` ${event.type} `, event.data?.name ?? event.subject ?? ""));
  while (list.children.length > 100) list.lastElementChild.remove();
}

document.getElementById("pause").addEventListener("click", (e) => {
  paused = !paused;
  e.target.setAttribute("aria-pressed", String(paused));
  e.target.textContent = paused ? "Resume" : "Pause";
  draw();
});

setInterval(() => {
  if (lastHeard && Date.now() - lastHeard > 40_000) say("down", `No news for ${age(lastHeard)}: what you see is old`);
}, 5000);
setInterval(() => {
  if (news.length === 0) return;
  document.getElementById("news").textContent = news.length > 3 ? `${news.length} changes` : news.join(", ");
  news.length = 0;
}, 10_000);
listen();
