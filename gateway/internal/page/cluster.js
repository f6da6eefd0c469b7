// The page of one cluster: its topology, its timeline, its conditions, and the
// commands to look further.
import { badge, copyButton, h, icon, link } from "./dom.js";
import { age, bytes, place, plural } from "./format.js";
import { renderAnswer, requestData } from "./api.js";
import { conditionList, eventList } from "./details.js";
import { explain } from "./causes.js";
import { commands, commandsFor } from "./commands.js";
import { href, to } from "./router.js";
import { addressesOf, backupsOf, find, hasJustChanged, machinesOf, networkOf } from "./store.js";
import { rolloutBadge, stateOf } from "./tables.js";
import { topology } from "./topology.js";
import { sumOf } from "./usage.js";
import { waterfall } from "./waterfall.js";
import { aboutReason, assess, pauseOf } from "./advice.js";
import { kindOf, titleOf } from "./kinds.js";
import { humanize } from "./texts.js";

const opened = new Set();

export const clusterView = {
  title: ({ args }) => `Cluster ${args[1]}`,
  draw({ args, query }) {
    const [namespace, name] = args;
    const cluster = find("clusters", namespace, name);
    if (!cluster) return missing("clusters", "cluster", namespace, name);
    const machines = machinesOf().get(`${namespace}/${name}`) ?? [];
    const stamp = [cluster, ...machines, ...machines.flatMap((m) => addressesOf().get(`${m.namespace}/${m.name}`) ?? [])]
      .map((i) => `${i.id}${i.phase}${i.ready}${i.since}${i.reason}`)
      .concat(cluster.lastUpdated)
      .join("|");
    const detail = `/api/v1/resources/${cluster.id}`;
    const life = `/api/v1/clusters/${cluster.id}/timeline`;
    const about = `/api/v1/objects/${cluster.id}`;
    const own = requestData(detail, stamp);
    const object = requestData(about, stamp);
    const lived = requestData(life, stamp);
    const nodes = new Map((own.data?.statusDetail?.nodes ?? []).map((n) => [n.name, n]));
    return [
      head(
        cluster,
        "clusters",
        [
          cluster.version && `Kubernetes ${cluster.version}`,
          cluster.talosVersion && `Talos ${cluster.talosVersion}`,
          cluster.endpoint,
          cluster.environment,
          cluster.datacenter,
        ].filter(Boolean),
      ),
      counts(cluster, machines),
      section("topology", "Topology", topology(cluster, nodes, query)),
      section(
        "timeline",
        "Timeline",
        renderAnswer(life, lived, (data) => waterfall(data, query)),
      ),
      h(
        "div",
        { class: "two" },
        section(
          "conditions",
          "Conditions",
          renderAnswer(about, object, (data) => conditionList(data.conditions)),
        ),
        section("events", "Events", eventList([[life, lived], [about, object]])),
      ),
      own.data?.statusDetail?.addons?.length > 0 && section("addons", "Add-ons", addons(own.data.statusDetail.addons)),
      section("backups", "Backups of etcd", backups(cluster)),
      section("manifests", "Generated manifests", manifests(cluster)),
      section("commands", "Commands", commands(commandsFor("clusters", cluster, own.data?.spec, own.data?.statusDetail))),
    ];
  },
};

// addons lists the add-ons with what of them is applied. digest is that of the manifests that were applied last.
const addons = (all) =>
  h(
    "ul",
    { class: "plain facts-list" },
    all.map((a) =>
      h(
        "li",
        { key: a.name },
        a.name,
        " ",
        badge(a.message ? "act" : a.digest ? "good" : "wait", a.message ? "Not applied" : a.digest ? "Applied" : "Waiting"),
        " ",
        h("span", { class: "soft small" }, [a.source, a.objects && plural(a.objects, "object"), a.message].filter(Boolean).join(" · ")),
      ),
    ),
  );

function backups(cluster) {
  const found = backupsOf().get(`${cluster.namespace}/${cluster.name}`) ?? [];
  if (!found.length) return h("p", { class: "soft" }, "No EtcdBackup names this cluster, so its etcd cannot be restored if it is lost.");
  return h(
    "ul",
    { class: "plain" },
    found.map((b) =>
      h(
        "li",
        { key: b.id },
        link(to("backups", b), b.name),
        " ",
        stateOf(b),
        b.lastSuccess ? ` newest snapshot ${age(b.lastSuccess)} ago, ${plural(b.snapshots, "snapshot")}` : " no snapshot yet",
      ),
    ),
  );
}

export const section = (id, title, ...content) =>
  h("section", { key: id, "aria-labelledby": `${id}-title` }, h("h2", { id: `${id}-title` }, title), content);

export function missing(view, noun, namespace, name) {
  return [
    h("h1", { tabindex: "-1" }, `No ${noun} ${name ?? namespace}`),
    h(
      "div",
      { class: "empty" },
      h("p", { class: "lead" }, name ? `There is no ${noun} of this name in namespace ${namespace}.` : `There is no ${noun} of this name.`),
      h(
        "p",
        {},
        "It may have been deleted or not created yet. This page updates automatically. ",
        link(href(view), `Back to all ${titleOf(view).toLowerCase()}`),
        ".",
      ),
    ),
  ];
}

export function head(item, topic, facts) {
  return h(
    "div",
    { class: `object-head ${hasJustChanged(item.id) ? "fresh" : ""}`, key: item.id },
    h(
      "p",
      { class: "crumbs small" },
      link(href(topic), titleOf(topic)),
      item.namespace ? ` / ${item.namespace}` : "",
    ),
    h("h1", { tabindex: "-1" }, item.name, " ", stateOf(item)),
    h("p", { class: "soft" }, [...facts, item.createdAt && `${age(item.createdAt)} old`].filter(Boolean).join(" · ")),
    pauseOf(item) && (item.ready || explain(item, topic).end.item !== item) && pause(pauseOf(item)),
    !item.ready && trouble(item, topic),
  );
}

// pause says that no function changes an item, and how that ends.
const pause = (w) =>
  h(
    "div",
    { class: "problem lone act", key: "pause" },
    icon("act"),
    h("div", {}, h("p", { class: "what" }, h("strong", {}, humanize(w.reason)), `: ${w.message}`), h("p", { class: "todo" }, w.remedy)),
    h("p", { class: "when" }, w.since ? `for ${age(w.since)}` : "", h("br"), h("span", { class: "soft" }, w.turn)),
  );

// trouble says why an item is not ready, which object is the cause, and which role acts.
function trouble(item, topic) {
  const { end, assessment: v } = explain(item, topic);
  const state = v.waits ? assess(item).state : v.state === "bad" ? "bad" : "act";
  return h(
    "div",
    { class: `problem lone ${state}` },
    icon(state),
    h(
      "div",
      {},
      h("p", { class: "what" }, h("strong", {}, humanize(item.reason) || item.phase), item.message ? `: ${item.message}` : ""),
      end.item !== item &&
        h(
          "p",
          { class: "what" },
          "The cause is ",
          h("span", { class: "soft" }, `${kindOf[end.topic]} `),
          link(to(end.topic, end.item), place(end.item)),
          `: ${[humanize(end.item.reason) || end.item.phase, end.item.message].filter(Boolean).join(": ")}`,
        ),
      h("p", { class: "todo" }, v.todo, " ", aboutReason(end.item.reason, end.topic)),
    ),
    h("p", { class: "when" }, item.since ? `for ${age(item.since)}` : "", h("br"), h("span", { class: "soft" }, v.who)),
  );
}

function counts(cluster, machines) {
  const network = networkOf(cluster);
  const running = machines.filter((m) => m.ready).length;
  const sum = sumOf(cluster);
  const facts = [
    ["Control plane", cluster.controlPlaneReady || "not yet"],
    ["Workers", cluster.workersReady || "none"],
    ["Nodes ready", `${cluster.nodes.ready} of ${cluster.nodes.total}`],
    ["Machines running", link(href("machines", [], { cluster: cluster.name, ns: cluster.namespace }), `${running} of ${machines.length}`)],
    ["Network", network ? link(to("networks", network), network.name) : cluster.network || "none"],
    ["Hypervisor nodes", new Set(machines.map((m) => m.host).filter(Boolean)).size],
    ["Template", cluster.clusterTemplate && followed(cluster.clusterTemplate)],
    ["CPUs", sum?.cpus],
    ["Memory", sum && bytes(sum.memory)],
    ["Storage", sum && bytes(sum.disk)],
  ];
  return dl(facts);
}

const followed = (t) => [find("clustertemplates", "", t.name) ? link(href("clustertemplates", [t.name]), t.name) : t.name, " ", rolloutBadge(t)];

export const dl = (facts) =>
  h(
    "dl",
    { class: "facts" },
    facts
      .filter(([, value]) => value !== undefined && value !== "" && value !== false)
      .map(([name, value]) => h("div", { key: name }, h("dt", {}, name), h("dd", {}, value))),
  );

function manifests(cluster) {
  const path = `/api/v1/clusters/${cluster.id}/manifests`;
  const open = opened.has(cluster.id);
  return h(
    "details",
    {
      open,
      ontoggle: (e) => {
        if (e.target.open) opened.add(cluster.id);
        else opened.delete(cluster.id);
        dispatchEvent(new Event("redraw"));
      },
    },
    h("summary", {}, "Objects generated from its manifest, without secrets"),
    open &&
      renderAnswer(path, requestData(path, `${cluster.phase}${cluster.machines}`), ({ files }) =>
        files.length === 0
          ? h("p", { class: "empty" }, "No manifests yet. They are generated once the condition TopologyValid is True.")
          : files.map((f) =>
              h(
                "details",
                { key: f.name, class: "file" },
                h("summary", {}, f.name, h("span", { class: "soft small" }, ` ${plural(f.content.split("\n").length, "line")}`)),
                f.redacted
                  ? h("p", { class: "note" }, "Not shown: it holds a private key.")
                  : [copyButton(f.content, f.name), h("pre", { tabindex: "0", "aria-label": f.name }, f.content)],
              ),
            ),
      ),
  );
}
