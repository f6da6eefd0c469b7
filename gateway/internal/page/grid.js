// A grid is a table of any length. Only the rows in sight are in the page; the rest
// is room above and below them. It is a real table: rows say their number, headers
// their order, and one row's link at a time can be reached with Tab, the others with
// the arrow keys.
import { h } from "./dom.js";
import { count } from "./format.js";
import { setQuery } from "./router.js";
import { hasJustChanged, notify } from "./store.js";
import { assess } from "./advice.js";

const rowHeight = 36;
const spare = 8;
// printedRows bounds the rows of a printed table.
const printedRows = 5000;

// On paper nothing can be scrolled: all rows are drawn before the page is printed.
let printing = false;
for (const [name, value] of [["beforeprint", true], ["afterprint", false]])
  addEventListener(name, () => {
    printing = value;
    dispatchEvent(new Event("redraw-now"));
  });

// places has, by grid, where it is scrolled to and which row the keys are at.
const places = new Map();
const placeOf = (id) => {
  if (!places.has(id)) places.set(id, { top: 0, height: 640, active: 0, want: false });
  return places.get(id);
};

const haystacks = new WeakMap();
function haystack(item, columns) {
  if (!haystacks.has(item)) {
    haystacks.set(
      item,
      [item.namespace, item.name, item.reason, item.message, ...columns.map((c) => c.value(item))].join(" ").toLowerCase(),
    );
  }
  return haystacks.get(item);
}

// select is the rows that a query asks for, in its order.
export function select(rows, columns, facets, query) {
  const wanted = (query.get("q") ?? "").toLowerCase().split(/\s+/).filter(Boolean);
  const set = facets.filter((f) => query.get(f.key));
  let found = rows;
  if (wanted.length) found = found.filter((item) => wanted.every((word) => haystack(item, columns).includes(word)));
  for (const f of set) found = found.filter((item) => String(f.value(item) ?? "") === query.get(f.key));
  if (query.get("ready") === "no") found = found.filter((item) => !item.ready);
  return query.get("sort") ? sorted(found, columns, query.get("sort")) : byTrouble(sorted(found, columns, ""));
}

// trouble orders rows by what is worst, for those who have not chosen an order.
const trouble = { bad: 0, act: 1, wait: 2, idle: 3, good: 4 };

function byTrouble(rows) {
  const keyed = rows.map((item) => [trouble[assess(item).state], item]);
  return keyed.sort((a, b) => a[0] - b[0]).map((k) => k[1]);
}

function sorted(rows, columns, sort) {
  const down = sort.startsWith("-");
  const column = columns.find((c) => c.key === sort.replace(/^-/, "")) ?? columns[0];
  const sign = down ? -1 : 1;
  const keyed = rows.map((item) => [column.value(item) ?? "", `${item.namespace ?? ""}/${item.name}`, item]);
  const collator = new Intl.Collator("en", { numeric: true });
  const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : a < b ? -1 : a > b ? 1 : 0);
  const text = rows.length > 3000 ? compare : (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : collator.compare(a, b));
  keyed.sort((a, b) => sign * text(a[0], b[0]) || text(a[1], b[1]));
  return keyed.map((k) => k[2]);
}

// grid describes the table. columns are {key, title, value, cell, width, least,
// number}: least is from how wide a window, in rem, the column is shown.
export function grid({ id, caption, columns, rows, query, hrefOf, empty }) {
  const place = placeOf(id);
  const wide = innerWidth / parseFloat(getComputedStyle(document.documentElement).fontSize);
  const shown = columns.filter((c) => !c.least || wide >= c.least);
  place.active = Math.min(place.active, Math.max(0, rows.length - 1));
  const start = Math.max(0, Math.min(Math.floor(place.top / rowHeight) - spare, rows.length - 1));
  const end = Math.min(rows.length, Math.ceil((place.top + place.height) / rowHeight) + spare);
  const [first, last] = printing ? [0, Math.min(rows.length, printedRows)] : [start, end];
  if (rows.length === 0) return h("div", { class: "empty" }, empty);
  const sort = query.get("sort") ?? "";
  return h(
    "div",
    {
      class: "grid",
      id,
      ref: (node) => fitGrid(node, place, rows.length),
      onscroll: (e) => {
        place.top = e.target.scrollTop;
        place.height = e.target.clientHeight;
        notify("scroll");
      },
      onkeydown: (e) => key(e, place, rows.length),
      tabindex: "-1",
    },
    h(
      "table",
      { "aria-rowcount": rows.length + 1 },
      h("caption", { class: "quiet" }, caption),
      h(
        "colgroup",
        {},
        shown.map((c) => h("col", { key: c.key, style: { width: c.width ?? "auto" } })),
      ),
      h(
        "thead",
        {},
        h(
          "tr",
          { "aria-rowindex": 1 },
          shown.map((c) => header(c, sort)),
        ),
      ),
      h(
        "tbody",
        {},
        room("above", first, shown.length),
        rows.slice(first, last).map((item, n) => row(item, first + n, place, shown, hrefOf)),
        room("below", printing ? 0 : rows.length - last, shown.length),
      ),
    ),
  );
}

function header(c, sort) {
  const mine = sort.replace(/^-/, "") === c.key;
  const down = mine && sort.startsWith("-");
  return h(
    "th",
    { key: c.key, scope: "col", class: c.number ? "number" : "", "aria-sort": mine ? (down ? "descending" : "ascending") : undefined },
    h(
      "button",
      { type: "button", title: c.title, onclick: () => setQuery({ sort: mine && !down ? `-${c.key}` : c.key }) },
      c.title,
      h("span", { class: "order", "aria-hidden": "true" }, mine ? (down ? "▼" : "▲") : ""),
    ),
  );
}

const room = (key, n, width) =>
  n > 0 && h("tr", { key, "aria-hidden": "true", class: "room" }, h("td", { colspan: width, style: { height: `${n * rowHeight}px` } }));

function row(item, n, place, columns, hrefOf) {
  return h(
    "tr",
    { key: item.id, "aria-rowindex": n + 2, class: hasJustChanged(item.id) ? "fresh" : "", "data-row": n },
    columns.map((c, at) => {
      const content = c.cell ? c.cell(item) : String(c.value(item) ?? "");
      const title = typeof content === "string" ? content : c.hint?.(item);
      if (at > 0) return h("td", { key: c.key, class: c.number ? "number" : "", title }, content);
      const target = hrefOf(item);
      return h(
        "th",
        { key: c.key, scope: "row", title },
        target
          ? h(
              "a",
              {
                href: target,
                tabindex: n === place.active ? "0" : "-1",
                onfocus: () => {
                  place.active = n;
                },
              },
              content,
            )
          : content,
      );
    }),
  );
}

// fitGrid follows the grid's size, and moves the focus to the row that the keys have selected.
function fitGrid(node, place, rows) {
  if (node.clientHeight && Math.abs(node.clientHeight - place.height) > rowHeight) {
    place.height = node.clientHeight;
    notify("scroll");
  }
  if (place.top > 0 && node.scrollTop === 0 && !place.seen) node.scrollTop = place.top;
  place.seen = true;
  if (!place.want) return;
  queueMicrotask(() => {
    const link = node.querySelector(`tr[data-row="${place.active}"] a`);
    if (link) {
      place.want = false;
      link.focus({ preventScroll: true });
    }
  });
}

const steps = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, PageDown: 15, PageUp: -15, Home: -Infinity, End: Infinity };

function key(e, place, rows) {
  const step = e.ctrlKey || e.metaKey || e.altKey ? undefined : steps[e.key];
  if (step === undefined || e.target.closest("thead")) return;
  e.preventDefault();
  place.active = Math.max(0, Math.min(rows - 1, place.active + step));
  place.want = true;
  const node = e.currentTarget;
  const at = place.active * rowHeight;
  const visible = node.clientHeight - 2 * rowHeight;
  if (at < node.scrollTop) node.scrollTop = at;
  else if (at > node.scrollTop + visible) node.scrollTop = at - visible;
  place.top = node.scrollTop;
  notify("scroll");
}

export function leaveGrid() {
  for (const place of places.values()) place.seen = false;
}

// searchForm is the search field of a view, with what else narrows what it shows.
export function searchForm(label, placeholder, query, ...others) {
  return h(
    "form",
    { class: "filters", role: "search", "aria-label": label, onsubmit: (e) => e.preventDefault() },
    h(
      "label",
      { class: "field grow" },
      h("span", {}, "Search"),
      h("input", {
        type: "search",
        id: "search",
        value: query.get("q") ?? "",
        placeholder,
        oninput: (e) => setQuery({ q: e.target.value }),
        autocomplete: "off",
        spellcheck: "false",
      }),
    ),
    ...others,
  );
}

// filters are the search field, the facets, and what they leave.
export function filters({ label, rows, found, facets, query, onexport }) {
  const active = query.get("q") || query.get("ready") || facets.some((f) => query.get(f.key));
  const unready = rows.filter((item) => !item.ready).length;
  return searchForm(
    label,
    "name, address, host, reason …",
    query,
    facets.map((f) => h("label", { class: "field", key: f.key }, h("span", {}, f.title), options(f, rows, query))),
    h(
      "button",
      {
        type: "button",
        key: "unready",
        "aria-pressed": String(query.get("ready") === "no"),
        onclick: () => setQuery({ ready: query.get("ready") ? "" : "no" }),
      },
      `Not ready (${count(unready)})`,
    ),
    h("p", { class: "found" }, found === rows.length ? count(found) : `${count(found)} of ${count(rows.length)}`),
    active &&
      h(
        "button",
        { type: "button", key: "clear", onclick: () => setQuery(Object.fromEntries([["q", ""], ["ready", ""], ...facets.map((f) => [f.key, ""])])) },
        "Clear",
      ),
    onexport && h("button", { type: "button", key: "csv", onclick: onexport }, "Export CSV"),
  );
}

function options(facet, rows, query) {
  const tally = new Map();
  for (const item of rows) {
    const value = String(facet.value(item) ?? "");
    if (value) tally.set(value, (tally.get(value) ?? 0) + 1);
  }
  const chosen = query.get(facet.key) ?? "";
  if (chosen && !tally.has(chosen)) tally.set(chosen, 0);
  return h(
    "select",
    { value: chosen, onchange: (e) => setQuery({ [facet.key]: e.target.value }) },
    h("option", { value: "" }, "all"),
    [...tally]
      .sort(([a], [b]) => a.localeCompare(b, "en", { numeric: true }))
      .map(([value, n]) => h("option", { key: value, value }, `${value} (${count(n)})`)),
  );
}

// exportCSV saves rows as a file. A cell that a spreadsheet would run is quoted so
// that it does not.
export function exportCSV(name, columns, rows) {
  const cell = (value) => {
    let text = Array.isArray(value) ? value.join(" ") : String(value ?? "");
    if (/^[=+\-@\t\r]/.test(text) && !/^-?\d+(\.\d+)?$/.test(text)) text = `'${text}`;
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const value = (c, item) => (c.csv ? c.csv(item) : c.value(item));
  const lines = [columns.map((c) => c.title), ...rows.map((item) => columns.map((c) => value(c, item)))];
  const file = new Blob([lines.map((line) => line.map(cell).join(",")).join("\r\n") + "\r\n"], { type: "text/csv" });
  const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(file), download: `${name}.csv` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
