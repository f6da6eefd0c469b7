// The frame of the page: navigation, connection, theme, keys, and the view that the
// URL names.
import { h, icon, patch } from "./dom.js";
import { count, plural, whole } from "./format.js";
import { connect, connection, dataAge, login, logout, start, summary, watchConnection } from "./connection.js";
import { clusterView } from "./cluster.js";
import { eventsView } from "./events.js";
import { leaveGrid } from "./grid.js";
import { hostsView } from "./hosts.js";
import { deadLettersView } from "./deadletters.js";
import { addressView, backupView, machineView, networkView, providerView } from "./objects.js";
import { templateView } from "./templates.js";
import { overview } from "./overview.js";
import { pipeline } from "./pipeline.js";
import { openPalette, paletteIsOpen } from "./palette.js";
import { problems } from "./problems.js";
import { href, parse } from "./router.js";
import { choose, setting } from "./settings.js";
import { all, forget, listen, notify, phaseChanges, streamState } from "./store.js";
import { table } from "./tables.js";

const pages = [
  { view: "overview", title: "Overview", key: "o", tally: () => problems().length, mark: "act" },
  { view: "pipeline", title: "Pipeline", key: "p" },
  { view: "clusters", title: "Clusters", key: "c", tally: () => all("clusters").length },
  { view: "clustertemplates", title: "Templates", key: "t", tally: () => all("clustertemplates").length },
  { view: "backups", title: "Backups", key: "b", tally: () => all("backups").length },
  { view: "machines", title: "Machines", key: "m", tally: () => all("machines").length },
  { view: "networks", title: "Networks", key: "n", tally: () => all("networks").length },
  { view: "addresses", title: "Addresses", key: "a", tally: () => all("allocations").length },
  { view: "hosts", title: "Hypervisors", key: "h", tally: () => all("hosts").length },
  { view: "events", title: "Events", key: "e" },
];
const searched = () => [...pages, { view: "dead-letters", title: "Dead letters" }];
const lists = { overview, pipeline, events: eventsView, hosts: hostsView, "dead-letters": deadLettersView };
for (const view of ["clusters", "clustertemplates", "backups", "machines", "networks", "addresses"]) lists[view] = table(view);
const singles = {
  clusters: clusterView,
  clustertemplates: templateView,
  backups: backupView,
  machines: machineView,
  networks: networkView,
  addresses: addressView,
  allocations: addressView,
  providers: providerView,
};

const unknown = {
  title: () => "Not found",
  draw: () => [
    h("h1", { tabindex: "-1" }, "There is no such page"),
    h("p", {}, "Choose a page above, or go to the ", h("a", { href: href("overview") }, "overview"), "."),
  ],
};

const main = document.getElementById("main");
let current = null;
let paused = false;

const viewOf = ({ view, args }) => (args.length ? singles[view] : lists[view]) ?? (view === "providers" ? hostsView : unknown);

function draw() {
  const route = parse();
  const view = viewOf(route);
  const name = [route.view, ...route.args].join("/");
  const moved = current?.name !== name;
  if (moved) {
    current?.view.leave?.();
    leaveGrid();
    view.enter?.(route);
  }
  drawFrame(route);
  if (!paused || moved) drawMain(view, route);
  if (!moved) return;
  document.title = `${view.title(route)} · Viti Stack`;
  if (current) {
    scrollTo(0, 0);
    main.querySelector("h1")?.focus({ preventScroll: true });
  }
  current = { name, view };
}

function drawMain(view, route) {
  if (connection.state === "login") patch(main, loginPage());
  else if (!streamState.synced) patch(main, waiting());
  else patch(main, view.draw(route));
  streamState.pausedChanges = 0;
}

// parents are the views of the navigation that other views belong to.
const parents = { allocations: "addresses", providers: "hosts", "dead-letters": "pipeline" };

function drawFrame(route) {
  const top = parents[route.view] ?? route.view;
  patch(
    document.getElementById("nav"),
    h(
      "ul",
      {},
      pages.map((p) => {
        const n = streamState.synced && p.tally ? p.tally() : 0;
        return h(
          "li",
          { key: p.view },
          h(
            "a",
            { href: href(p.view), "aria-current": top === p.view ? "page" : undefined },
            p.title,
            n > 0 && [
              " ",
              h("span", { class: `tally ${p.mark ?? ""}` }, count(n), p.mark && h("span", { class: "quiet" }, " need attention")),
            ],
          ),
        );
      }),
    ),
  );
  const s = summary();
  patch(document.getElementById("connection"), [icon(s.state), h("span", { class: "state", "data-state": connection.state }, s.text)]);
  document.getElementById("connection").title = s.detail;
  patch(document.getElementById("notice"), [notice(s), openNotice(), connection.session?.name && stillLoggedIn && h("p", { class: "note bad", role: "alert" }, stillLoggedIn)]);
  patch(document.getElementById("tools"), [
    h(
      "button",
      {
        type: "button",
        id: "pause",
        "aria-pressed": String(paused),
        onclick: () => {
          paused = !paused;
          notify("state");
        },
      },
      paused ? `Resume${streamState.pausedChanges ? ` (${count(streamState.pausedChanges)})` : ""}` : "Pause",
    ),
    h(
      "label",
      {},
      h("span", { class: "quiet" }, "Colours"),
      h(
        "select",
        { id: "theme", value: theme(), onchange: (e) => setTheme(e.target.value) },
        ["system", "light", "dark"].map((t) => h("option", { key: t, value: t }, t)),
      ),
    ),
    connection.state !== "login" &&
      h("button", { type: "button", id: "find", onclick: () => openPalette(searched()), "aria-haspopup": "dialog", "aria-label": "Search everything" }, "Search"),
    h("button", { type: "button", onclick: showKeys, "aria-haspopup": "dialog", "aria-label": "Keys" }, "?"),
    connection.session?.name?.startsWith("key/") &&
      h("button", { type: "button", onclick: endSession, title: connection.session.name }, "Log out"),
  ]);
}

// stillLoggedIn says why the session has not ended.
let stillLoggedIn = "";
async function endSession() {
  stillLoggedIn = await logout().then(() => "", (err) => err.message);
  notify("connection");
}

// notice says that the shown data may be old, how old it is, and what happens next.
function notice(s) {
  if (paused)
    return h("p", { class: "note wait" }, icon("wait"), ` Updates paused. ${plural(streamState.pausedChanges, "change")} pending.`);
  if (connection.state !== "reconnecting" || !streamState.synced) return null;
  const next = Math.max(0, (connection.retryAt - Date.now()) / 1000);
  return h(
    "p",
    { class: `note ${s.state}` },
    icon(s.state),
    ` ${s.detail} Data is ${whole(dataAge())} old. ${next > 1 ? `Retrying in ${Math.ceil(next)} s. ` : "Retrying now. "}`,
    h("button", { type: "button", class: "small", onclick: connect }, "Try now"),
  );
}

// openNotice says that the gateway requires no key.
function openNotice() {
  if (connection.session?.required !== false) return null;
  return h(
    "p",
    { class: "note open small" },
    icon("wait"),
    " Anyone who can reach this address can read this page. Set auth.enabled=true of the gateway to require an API key.",
  );
}

function waiting() {
  if (connection.state === "connecting" || connection.state === "live")
    return [
      h("h1", { tabindex: "-1", class: "quiet" }, "Loading"),
      h(
        "div",
        { class: "loading", "aria-hidden": "true" },
        [1, 2, 3, 4, 5, 6].map((n) => h("span", { key: n })),
      ),
      h("p", { class: "soft" }, "Reads the state of the stack …"),
    ];
  return [
    h("h1", { tabindex: "-1" }, "Not connected"),
    h(
      "div",
      { class: "empty" },
      h("p", { class: "lead" }, connection.why),
      h(
        "p",
        {},
        `The connection is retried automatically${connection.retryAt > Date.now() ? `, in ${Math.ceil((connection.retryAt - Date.now()) / 1000)} s` : ""}.`,
      ),
      h("button", { type: "button", onclick: connect }, "Try now"),
    ),
  ];
}

let refusal = "";
function loginPage() {
  return [
    h("h1", { tabindex: "-1" }, "Log in"),
    h(
      "form",
      {
        class: "login",
        onsubmit: async (e) => {
          e.preventDefault();
          const field = e.target.elements.key;
          try {
            await login(field.value.trim());
            refusal = "";
          } catch (err) {
            refusal = err.message;
            field.focus();
          }
          field.value = "";
          notify("connection");
        },
      },
      h(
        "p",
        {},
        "This gateway asks for an API key with the scope read. Ask your platform administrator for a key.",
      ),
      h("label", { for: "key" }, "API key"),
      h("input", {
        type: "password",
        id: "key",
        name: "key",
        required: true,
        autocomplete: "current-password",
        "aria-describedby": "key-hint",
        "aria-invalid": refusal ? "true" : undefined,
      }),
      h("p", { class: "soft small", id: "key-hint" }, "The key is stored in a session cookie that scripts cannot read."),
      !refusal && connection.why && h("p", { class: "note bad", role: "alert" }, connection.why),
      refusal &&
        h("p", { class: "note bad", role: "alert" }, refusal),
      h("button", { type: "submit", class: "primary" }, "Log in"),
    ),
  ];
}

const theme = () => document.documentElement.dataset.theme ?? "system";
function setTheme(name) {
  if (name === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  choose("theme", name);
  notify("state");
}

// Keyboard shortcuts can be disabled for users of speech input.
const keysOn = () => setting("keys") !== "off";
const dialog = document.getElementById("keys");
function showKeys() {
  patch(dialog, [
    h("h2", {}, "Keys"),
    h(
      "dl",
      { class: "facts keys" },
      [
        ["/", "search everything"],
        ["f", "search in the view"],
        ["j k or arrows", "move between rows"],
        ["Enter", "open"],
        ...pages.map((p) => [`g ${p.key}`, p.title]),
        ["?", "this list"],
      ].map(([k, what]) => h("div", { key: k }, h("dt", {}, h("kbd", {}, k)), h("dd", {}, what))),
    ),
    h(
      "label",
      { class: "check" },
      h("input", { type: "checkbox", checked: keysOn(), onchange: (e) => choose("keys", e.target.checked ? "on" : "off") }),
      " Single keys work",
    ),
    h("button", { type: "button", class: "primary", onclick: () => dialog.close() }, "Close"),
  ]);
  dialog.showModal();
}

let prefix = 0;
addEventListener("keydown", (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey || !keysOn() || dialog.open || paletteIsOpen()) return;
  if (e.target.matches?.("input, select, textarea")) {
    if (e.key === "Escape") e.target.blur();
    return;
  }
  const page = Date.now() - prefix < 1500 && pages.find((p) => p.key === e.key);
  prefix = e.key === "g" ? Date.now() : 0;
  if (page) location.hash = href(page.view);
  else if (e.key === "/") openPalette(searched());
  else if (e.key === "f") document.getElementById("search")?.focus();
  else if (e.key === "?") showKeys();
  else if ((e.key === "j" || e.key === "ArrowDown") && !e.target.closest?.(".grid")) {
    const first = main.querySelector('.grid tbody a[tabindex="0"]');
    if (!first || e.key !== "j") return;
    first.focus();
  } else return;
  e.preventDefault();
});

// Drawing waits for the next frame, so that many changes are drawn once.
let asked = false;
function schedule() {
  if (asked) return;
  asked = true;
  requestAnimationFrame(() => {
    asked = false;
    draw();
  });
}
listen(schedule);
addEventListener("hashchange", schedule);
addEventListener("redraw", schedule);
addEventListener("redraw-now", draw);
addEventListener("resize", schedule);
setInterval(() => {
  forget();
  schedule();
}, 3000);

// Changes are read out together, and not too often.
let announced = "live";
setInterval(() => {
  const region = document.getElementById("news");
  const s = summary();
  if (s.text !== announced && connection.state !== "connecting") {
    announced = s.text;
    region.textContent = `${s.text}. ${s.state === "good" ? "" : s.detail}`;
    return;
  }
  if (phaseChanges.length === 0 || paused) return;
  const lines = phaseChanges.splice(0);
  region.textContent =
    lines.length > 3 ? `${plural(lines.length, "change")}` : lines.map(({ item }) => `${item.name}: ${item.phase}`).join(", ");
}, 10_000);

setTheme(setting("theme") ?? "system");
schedule();
watchConnection();
start();
