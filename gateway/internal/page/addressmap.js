// A network's addresses as a map: each cell is an address, or in a large network
// as many as fit. Numbers are BigInt, since IPv6 does not fit anything smaller.
import { h } from "./dom.js";
import { plural } from "./format.js";

const mostCells = 1024n;

export function parseAddress(text) {
  if (!text) return undefined;
  if (!text.includes(":")) {
    const parts = text.split(".");
    if (parts.length !== 4 || parts.some((p) => !/^\d{1,3}$/.test(p) || p > 255)) return undefined;
    return parts.reduce((sum, p) => sum * 256n + BigInt(p), 0n);
  }
  const [before, after] = text.split("::");
  const groups = (part) => (part ? part.split(":") : []);
  const head = groups(before);
  const tail = after === undefined ? [] : groups(after);
  const middle = after === undefined ? 0 : 8 - head.length - tail.length;
  const all = [...head, ...Array(Math.max(0, middle)).fill("0"), ...tail];
  if (all.length !== 8) return undefined;
  return all.reduce((sum, g) => sum * 65536n + BigInt(parseInt(g, 16) || 0), 0n);
}

export function formatAddress(n, v6) {
  if (!v6) return [24n, 16n, 8n, 0n].map((s) => (n >> s) & 255n).join(".");
  const groups = Array.from({ length: 8 }, (_, i) => ((n >> BigInt(112 - 16 * i)) & 65535n).toString(16));
  const text = groups.join(":");
  const zeros = [...text.matchAll(/(^|:)0(:0)+(?=:|$)/g)].sort((a, b) => b[0].length - a[0].length)[0];
  return zeros ? `${text.slice(0, zeros.index)}::${text.slice(zeros.index + zeros[0].length + 1)}` : text;
}

export function parsePrefix(text) {
  const [address, bits] = (text ?? "").split("/");
  const n = parseAddress(address);
  if (n === undefined || !/^\d{1,3}$/.test(bits ?? "")) return undefined;
  const v6 = text.includes(":");
  const length = v6 ? 128 : 32;
  if (bits > length) return undefined;
  const size = 1n << BigInt(length - bits);
  const first = n - (n % size);
  return { first, last: first + size - 1n, size, v6 };
}

// interval reads an address, a prefix, or a range written first-last.
function interval(text) {
  if (text.includes("/")) return parsePrefix(text);
  const [a, b] = text.split("-");
  const first = parseAddress(a);
  const last = parseAddress(b ?? a);
  return first === undefined || last === undefined ? undefined : { first, last };
}

// addressPlan says of each address what it is: the marks come in order, and a later
// one overrides an earlier one.
export function addressPlan(network, spec, allocations, v6) {
  const prefix = parsePrefix(v6 ? network.ipv6Prefix : network.ipv4Prefix);
  if (!prefix) return undefined;
  const pool = spec?.ipAllocation?.static ?? {};
  const marks = [];
  const add = (state, range, what) =>
    range &&
    range.last >= prefix.first &&
    range.first <= prefix.last &&
    marks.push({
      state,
      what,
      first: range.first < prefix.first ? prefix.first : range.first,
      last: range.last > prefix.last ? prefix.last : range.last,
    });
  const start = parseAddress(v6 ? pool.ipv6RangeStart : pool.ipv4RangeStart);
  const end = parseAddress(v6 ? pool.ipv6RangeEnd : pool.ipv4RangeEnd);
  if (start !== undefined && start > prefix.first) add("excluded", { first: prefix.first, last: start - 1n }, "outside the pool");
  if (end !== undefined && end < prefix.last) add("excluded", { first: end + 1n, last: prefix.last }, "outside the pool");
  for (const text of pool.excludedAddresses ?? []) if (text.includes(":") === v6) add("excluded", interval(text), "excluded");
  if (prefix.size > 2n) {
    add("excluded", { first: prefix.first, last: prefix.first }, "network");
    if (!v6) add("excluded", { first: prefix.last, last: prefix.last }, "broadcast");
  }
  const gateway = parseAddress(v6 ? network.ipv6Gateway : network.ipv4Gateway);
  if (gateway !== undefined) add("excluded", { first: gateway, last: gateway }, "gateway");
  for (const a of allocations) {
    const n = a.address && a.address.includes(":") === v6 ? parseAddress(a.address) : undefined;
    if (n !== undefined && a.phase !== "Released") add(a.holder ? "allocated" : "reserved", { first: n, last: n }, a.holder || a.name);
  }
  return { prefix, marks, runs: runs(prefix, marks) };
}

// runs are the marks as intervals without gaps and overlaps, in order.
function runs(prefix, marks) {
  const cuts = new Set([prefix.first, prefix.last + 1n]);
  for (const m of marks) {
    cuts.add(m.first);
    cuts.add(m.last + 1n);
  }
  const sorted = [...cuts].filter((c) => c <= prefix.last + 1n).sort((a, b) => (a < b ? -1 : a > b ? 1 : 0));
  const singles = new Map();
  const wide = [];
  for (const m of marks) {
    if (m.first === m.last) singles.set(m.first, m);
    else wide.push(m);
  }
  const out = [];
  for (let i = 0; i + 1 < sorted.length; i++) {
    const first = sorted[i];
    const last = sorted[i + 1] - 1n;
    const mark = singles.get(first) ?? wide.findLast((m) => m.first <= first && m.last >= last);
    const state = mark?.state ?? "free";
    const what = mark?.what ?? "";
    const before = out.at(-1);
    if (before && before.state === state && (state === "free" || before.what === what)) before.last = last;
    else out.push({ first, last, state, what });
  }
  return out;
}

export const states = ["allocated", "reserved", "free", "excluded"];

export function tally(plan) {
  const sums = Object.fromEntries(states.map((s) => [s, 0n]));
  for (const r of plan.runs) sums[r.state] += r.last - r.first + 1n;
  return sums;
}

// cellsOf returns, for each cell, the number of its addresses in each state.
function cellsOf({ prefix, runs: list }) {
  const number = prefix.size < mostCells ? prefix.size : mostCells;
  const each = prefix.size / number;
  const cells = Array.from({ length: Number(number) }, () => ({ allocated: 0n, reserved: 0n, free: 0n, excluded: 0n, what: "" }));
  for (const r of list) {
    let at = (r.first - prefix.first) / each;
    for (let from = r.first; from <= r.last; at++) {
      const end = prefix.first + (at + 1n) * each - 1n;
      const to = end < r.last ? end : r.last;
      const cell = cells[Number(at)];
      cell[r.state] += to - from + 1n;
      if (r.what && r.state !== "free") cell.what = r.what;
      from = to + 1n;
    }
  }
  return { cells, each };
}

// big is a number in digits, or where those are no help about how many
// binary places it has.
function big(n) {
  if (n <= 9007199254740991n) return Number(n).toLocaleString("en");
  const bits = n.toString(2);
  return `2^${bits.length - (bits[1] === "1" ? 0 : 1)}`;
}

export function addressMap(plan) {
  const { cells, each } = cellsOf(plan);
  const columns = cells.length >= 256 ? 32 : Math.max(1, Math.min(16, cells.length));
  const sums = tally(plan);
  const label = `Address map: ${states.map((s) => `${big(sums[s])} ${s}`).join(", ")}.`;
  const size = 20;
  return h(
    "div",
    {},
    h(
      "ul",
      { class: "legend plain" },
      states.map((s) =>
        h(
          "li",
          { key: s },
          h("svg", { class: "swatch", viewBox: "0 0 18 18", width: 18, height: 18, "aria-hidden": "true" }, cellShape(s, 0, 0)),
          `${big(sums[s])} ${s}`,
        ),
      ),
    ),
    h(
      "svg",
      {
        class: "address-map",
        viewBox: `0 0 ${columns * size} ${Math.ceil(cells.length / columns) * size}`,
        style: { "max-width": `${columns * 26}px` },
        role: "img",
        "aria-label": label,
      },
      cells.map((c, n) => {
        const state = states.slice(0, 2).find((s) => c[s] > 0n) ?? (c.free > 0n ? "free" : "excluded");
        const full = each > 1n && state === "allocated" ? Number((c.allocated * 100n) / each) / 100 : 1;
        const first = plan.prefix.first + BigInt(n) * each;
        const name =
          each === 1n ? formatAddress(first, plan.prefix.v6) : `${formatAddress(first, plan.prefix.v6)} and ${big(each - 1n)} more`;
        return h(
          "g",
          { key: n, opacity: each > 1n && state === "allocated" ? Math.max(0.35, full) : undefined },
          h("title", {}, `${name}: ${state}${c.what ? `, ${c.what}` : ""}${each > 1n ? `, ${big(c.allocated)} allocated` : ""}`),
          cellShape(state, (n % columns) * size, Math.floor(n / columns) * size),
        );
      }),
    ),
    each > 1n && h("p", { class: "soft small" }, `Each cell stands for ${plural(Number(each), "address", "addresses")}.`),
  );
}

// The shape of a cell shows its state without colour.
function cellShape(state, x, y) {
  return [
    h("rect", { class: `cell ${state}`, x: x + 1, y: y + 1, width: 16, height: 16, rx: 2 }),
    state === "reserved" && h("path", { class: "cell-mark", d: `M${x + 5} ${y + 9}h8M${x + 9} ${y + 5}v8` }),
    state === "excluded" && h("path", { class: "cell-mark thin", d: `M${x + 4} ${y + 14}L${x + 14} ${y + 4}` }),
    state === "allocated" && h("circle", { class: "cell-dot", cx: x + 9, cy: y + 9, r: 2.5 }),
  ];
}

// rangeTable says the same in words, free and excluded ranges as a whole.
export function rangeTable(plan, linkOf) {
  const most = 400;
  const shown = plan.runs.slice(0, most);
  return h(
    "div",
    { class: "scroll", role: "region", tabindex: "0", "aria-label": "Ranges of addresses, can be scrolled" },
    h(
      "table",
      { class: "lines" },
      h("caption", { class: "quiet" }, "Addresses by range"),
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          ["From", "To", "Is", "For"].map((t) => h("th", { scope: "col" }, t)),
        ),
      ),
      h(
        "tbody",
        {},
        shown.map((r) =>
          h(
            "tr",
            { key: `${r.first}` },
            h("th", { scope: "row" }, formatAddress(r.first, plan.prefix.v6)),
            h("td", {}, r.first === r.last ? "" : formatAddress(r.last, plan.prefix.v6)),
            h("td", {}, r.state),
            h("td", {}, r.state === "allocated" ? linkOf(r.what) : r.what),
          ),
        ),
      ),
      plan.runs.length > most && h("tfoot", {}, h("tr", {}, h("td", { colspan: 4 }, `and ${plan.runs.length - most} more ranges`))),
    ),
  );
}
