// The sizes that template of machines and pools names, and the machines that have them.
import { renderAnswer, requestData, retry } from "./api.js";
import { h, link } from "./dom.js";
import { bytes, count, plural } from "./format.js";
import { href } from "./router.js";
import { all, derive, streamState } from "./store.js";

const path = "/api/v1/machine-classes";

// users is the machines and clusters by template.
const users = derive(["machines"], () => {
  const groups = new Map();
  for (const m of all("machines")) {
    if (!m.template) continue;
    const of = groups.get(m.template) ?? { machines: 0, clusters: new Set() };
    of.machines++;
    if (m.cluster) of.clusters.add(`${m.namespace}/${m.cluster}`);
    groups.set(m.template, of);
  }
  return groups;
});

// stamp changes when machines name other templates, which may be new MachineClasses, and when they find theirs.
const stamp = () => [streamState.gaps, ...[...users().keys()].sort(), all("machines").filter((m) => m.reason === "TemplateNotFound").length].join(",");

// cached is how long the gateway keeps the list, in milliseconds.
const cached = 5000;
let askedAgain = "";

// askOnceMore asks for a template that the list lacks, because the list may be older than its MachineClass.
function askOnceMore(now) {
  if (askedAgain === now) return;
  askedAgain = now;
  setTimeout(() => retry(path), cached + 1000);
}

const disksOf = (size) => size.disks.map((d) => [d.name, bytes(d.bytes), d.storageClass].filter(Boolean).join(" ")).join(", ");

function row(size) {
  const use = users().get(size.name);
  return h(
    "tr",
    { key: size.name },
    h("th", { scope: "row" }, size.name, size.builtIn && h("span", { class: "soft" }, " built in")),
    h("td", { class: "number" }, count(size.cpus)),
    h("td", { class: "number" }, bytes(size.memoryBytes)),
    h("td", {}, disksOf(size)),
    h("td", {}, use ? link(href("machines", [], { template: size.name }), usersOf(use)) : h("span", { class: "soft" }, "not used")),
  );
}

function usersOf({ machines, clusters }) {
  return [plural(machines, "machine"), clusters.size > 0 && `of ${plural(clusters.size, "cluster")}`].filter(Boolean).join(" ");
}

// missing is the templates of machines that do not exist any more. Their machines keep the size.
const missing = (classes) => [...users().keys()].filter((name) => !classes.some((c) => c.name === name)).sort();

// machineClassTable describes the built-in sizes and the MachineClasses.
export function machineClassTable() {
  const now = stamp();
  const answer = requestData(path, now);
  if (answer.data && missing(answer.data.machineClasses).length > 0) askOnceMore(now);
  return h(
    "section",
    { key: "sizes", "aria-labelledby": "sizes-title" },
    h("h2", { id: "sizes-title" }, "Machine classes"),
    h("p", { class: "soft" }, "The sizes that template of machines and pools may name."),
    renderAnswer(path, answer, ({ machineClasses }) => [
      h(
        "div",
        { key: "table", class: "scroll", role: "region", tabindex: "0", "aria-label": "Machine classes, can be scrolled" },
        h(
          "table",
          { class: "lines sums" },
          h("caption", { class: "quiet" }, "Machine classes"),
          h(
            "thead",
            {},
            h(
              "tr",
              {},
              ["Name", "CPUs", "Memory", "Disks", "Used by"].map((t) =>
                h("th", { key: t, scope: "col", class: t === "CPUs" || t === "Memory" ? "number" : "" }, t),
              ),
            ),
          ),
          h("tbody", {}, machineClasses.map(row)),
        ),
      ),
      missing(machineClasses).map((name) =>
        h(
          "p",
          { key: `missing-${name}`, class: "note wait" },
          `Template ${name} does not exist, and is named by `,
          link(href("machines", [], { template: name }), usersOf(users().get(name))),
          ": a running machine keeps its size, and a new one waits for the MachineClass.",
        ),
      ),
    ]),
  );
}
