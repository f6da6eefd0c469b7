// The palette searches everything that the page knows, from every view: names, namespaces, addresses, MAC addresses, identifiers and
// prefixes of all objects, nodes and virtual machines, and the views.
import { badge, h, patch } from "./dom.js";
import { plural } from "./format.js";
import { href, to } from "./router.js";
import { all } from "./store.js";
import { assess } from "./advice.js";
import { kindOf } from "./kinds.js";

const topics = ["clusters", "clustertemplates", "machines", "networks", "allocations", "addresses", "backups", "hosts", "vms", "providers"];
const mostShown = 20;
const dialog = document.getElementById("palette");
const state = { text: "", at: 0, found: [], total: 0, views: [] };

// keysOf returns the texts that an item is found by. The first one is its name.
const keysOf = (item, topic) =>
  [
    item.name,
    item.namespace && `${item.namespace}/${item.name}`,
    item.id,
    item.address,
    item.requestedAddress,
    item.holder,
    item.machine,
    item.cluster,
    item.endpoint,
    item.ipv4Prefix,
    item.ipv6Prefix,
    item.vlanId && `VLAN ${item.vlanId}`,
    topic === "machines" && item.vm,
    item.clusterId,
    ...(item.addresses?.length ? item.addresses : []),
    ...(item.interfaces ?? []).flatMap((i) => [i.macAddress, ...(i.addresses ?? [])]),
  ].filter(Boolean);

// rankOf says how well texts match a word, the smaller the better, and which of them does. It is nothing if none does.
function rankOf(texts, word) {
  let best;
  texts.forEach((text, n) => {
    const found = text.toLowerCase().indexOf(word);
    if (found < 0) return;
    const rank = (text.length === word.length ? 0 : found === 0 ? 2 : 4) + (n < 2 ? 0 : 1);
    if (!best || rank < best.rank) best = { rank, text, byName: n < 2 };
  });
  return best;
}

// search returns what matches all words of a text, the best first: {title, kind, href, hint, item}.
export function search(text, views = []) {
  const wanted = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (wanted.length === 0) return [];
  const found = [];
  const consider = (texts, more) => {
    const matches = wanted.map((word) => rankOf(texts, word));
    if (!matches.every(Boolean)) return;
    const by = matches.find((m) => !m.byName);
    found.push({ rank: Math.max(...matches.map((m) => m.rank)), hint: by?.text ?? "", ...more });
  };
  for (const v of views) consider([v.title], { key: v.view, title: v.title, kind: "View", href: href(v.view) });
  for (const topic of topics)
    for (const item of all(topic)) {
      if (topic === "addresses" && item.machine) continue;
      const title = item.namespace ? `${item.namespace}/${item.name}` : item.name;
      consider([...keysOf(item, topic), ...macsOf(item, topic)], { key: `${topic}|${item.id}`, title, kind: kindOf[topic], href: to(topic, item), item });
    }
  return found.sort((a, b) => a.rank - b.rank || topicRank(a) - topicRank(b) || a.title.localeCompare(b.title, "en", { numeric: true }));
}

const topicRank = (r) => topics.indexOf(r.key.split("|")[0]);

// macsOf returns the MAC addresses of a machine, which its NetworkConfigurations have.
function macsOf(item, topic) {
  if (topic !== "machines") return [];
  return (configurations().get(`${item.namespace}/${item.name}`) ?? []).flatMap((a) => a.interfaces.map((i) => i.macAddress)).filter(Boolean);
}

let grouped = { of: null, map: new Map() };
function configurations() {
  const now = all("addresses");
  if (grouped.of !== now) grouped = { of: now, map: Map.groupBy(now.filter((a) => a.machine), (a) => `${a.namespace}/${a.machine}`) };
  return grouped.map;
}

function draw() {
  const shown = state.found.slice(0, mostShown);
  patch(dialog, [
    h("label", { class: "quiet", for: "palette-text" }, "Search everything"),
    h("input", {
      type: "search",
      id: "palette-text",
      role: "combobox",
      "aria-expanded": String(shown.length > 0),
      "aria-controls": "palette-list",
      "aria-autocomplete": "list",
      "aria-activedescendant": shown.length ? `palette-${state.at}` : undefined,
      placeholder: "name, address, MAC, UID …",
      autocomplete: "off",
      spellcheck: "false",
      value: state.text,
      oninput: (e) => find(e.target.value),
      onkeydown: key,
    }),
    h(
      "ul",
      { id: "palette-list", class: "plain", role: "listbox", "aria-label": "Matches" },
      shown.map((r, n) =>
        h(
          "li",
          { key: r.key, id: `palette-${n}`, role: "option", "aria-selected": String(n === state.at), onclick: () => go(r), title: r.title },
          h("span", { class: "row" }, h("strong", {}, r.title), r.item?.phase ? badge(assess(r.item).state, r.item.phase) : ""),
          h("span", { class: "soft small" }, [r.kind, r.hint].filter(Boolean).join(" · ")),
        ),
      ),
    ),
    h(
      "p",
      { class: "soft small", role: "status" },
      !state.text.trim()
        ? "Type a name, an address, a MAC address, a UID or a view. The arrow keys choose, Enter opens, Escape closes."
        : state.found.length === 0
          ? "Nothing matches."
          : state.found.length > shown.length
            ? `The best ${mostShown} of ${plural(state.found.length, "match", "matches")}.`
            : plural(state.found.length, "match", "matches"),
    ),
  ]);
}

function find(text) {
  Object.assign(state, { text, at: 0, found: search(text, state.views) });
  draw();
}

function key(e) {
  const step = { ArrowDown: 1, ArrowUp: -1 }[e.key];
  if (step) {
    const last = Math.min(state.found.length, mostShown) - 1;
    state.at = Math.max(0, Math.min(last, state.at + step));
    draw();
    document.getElementById(`palette-${state.at}`)?.scrollIntoView({ block: "nearest" });
  } else if (e.key === "Escape") {
    // A search field takes the key to empty itself.
    dialog.close();
  } else if (e.key === "Enter" && state.found[state.at]) go(state.found[state.at]);
  else return;
  e.preventDefault();
}

function go(result) {
  dialog.close();
  location.hash = result.href;
}

// openPalette shows the palette. views are {view, title}.
export function openPalette(views) {
  Object.assign(state, { text: "", at: 0, found: [], views });
  draw();
  dialog.showModal();
  document.getElementById("palette-text").focus();
}

export const paletteIsOpen = () => dialog.open;
