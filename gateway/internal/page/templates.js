// The page of one cluster template: its waves, with the clusters that follow it, and what keeps its rollout from continuing.
import { h, link } from "./dom.js";
import { count, moment, plural } from "./format.js";
import { dl, head, missing, section } from "./cluster.js";
import { commands, commandsFor } from "./commands.js";
import { conditionsAndEvents } from "./objects.js";
import { rolloutBadge } from "./tables.js";
import { humanize } from "./texts.js";
import { href, to } from "./router.js";
import { clustersOf, find } from "./store.js";

export const templateView = {
  title: ({ args }) => `Cluster template ${args[0]}`,
  draw({ args: [name] }) {
    const t = find("clustertemplates", "", name);
    if (!t) return missing("clustertemplates", "cluster template", name);
    return [
      head(t, "clustertemplates", [t.version && `Kubernetes ${t.version}`, t.talosVersion && `Talos ${t.talosVersion}`].filter(Boolean)),
      dl([
        ["Clusters", t.clusters],
        ["Current", t.currentClusters],
        ["Updating", t.updatingClusters],
        ["Waiting", t.waitingClusters],
        ["Wave", t.wave],
        ["Next wave", t.nextWaveAt && moment(t.nextWaveAt)],
        ["Rollout", t.paused && "paused"],
      ]),
      section("waves", "Clusters by wave", waves(t)),
      t.overrides && section("overrides", "Fields in the manifests of clusters", overrides(t)),
      conditionsAndEvents(t),
      section("commands", "Commands", commands(commandsFor("clustertemplates", t))),
    ];
  },
};

// mostShown bounds the clusters of a wave that are drawn.
const mostShown = 100;

function waves(t) {
  const clusters = clustersOf().get(t.name) ?? [];
  if (!clusters.length) return h("p", { class: "empty" }, `No cluster names it. A cluster follows it with spec.templateRef: {name: ${t.name}}.`);
  const groups = [...t.waves, { name: "", maxConcurrent: t.maxConcurrent }].map((wave) => [wave, clusters.filter((c) => (c.clusterTemplate.wave ?? "") === wave.name)]);
  return groups
    .filter(([wave, members]) => wave.name || members.length)
    .map(([wave, members]) =>
      h(
        "div",
        { key: wave.name || "none" },
        h("h3", {}, wave.name || (t.waves.length ? "In no wave, after all others" : "All clusters"), wave.name && wave.name === t.wave ? h("small", {}, t.nextWaveAt ? " finished" : " in progress") : ""),
        h("p", { class: "soft small" }, rule(wave)),
        h("ul", { class: "plain facts-list" }, shownOf(members).map(member)),
        members.length > mostShown &&
          h("p", { class: "soft" }, `${count(mostShown)} of ${count(members.length)} clusters are shown. `, link(href("clusters", [], { template: t.name }), "All its clusters as a table")),
      ),
    );
}

// shownOf returns the clusters of a wave that are drawn. Those that are current come last if there are too many.
const shownOf = (members) =>
  members.length > mostShown ? [...members].sort((a, b) => (a.clusterTemplate.state === "Current") - (b.clusterTemplate.state === "Current")).slice(0, mostShown) : members;

// rule says which clusters are in a wave, and how it is updated.
const rule = (wave) =>
  [
    Object.entries(wave.matchLabels ?? {}).map(([key, value]) => `${key}=${value}`).join(", "),
    `${plural(wave.maxConcurrent, "cluster")} at the same time`,
    wave.pauseAfter && `then a pause of ${wave.pauseAfter}`,
  ]
    .filter(Boolean)
    .join(" · ");

function member(c) {
  const { state, refusal } = c.clusterTemplate;
  const isHeld = ["Updating", "Stopped"].includes(state);
  const why = refusal ?? (isHeld && !c.ready ? [humanize(c.reason), c.message].filter(Boolean).join(": ") : "");
  return h(
    "li",
    { key: c.id },
    link(to("clusters", c), `${c.namespace}/${c.name}`),
    " ",
    rolloutBadge(c.clusterTemplate),
    " ",
    h("span", { class: "soft small" }, [c.version && `Kubernetes ${c.version}`, why].filter(Boolean).join(" · ")),
  );
}

function overrides(t) {
  return [
    h("p", { class: "soft small" }, "The manifest of a cluster takes precedence. Remove a field from it to have the template write the field."),
    h("ul", { class: "plain facts-list" }, t.overrides.map((o) => h("li", { key: `${o.namespace}/${o.name}` }, link(to("clusters", o), `${o.namespace}/${o.name}`), ` ${o.fields.join(", ")}`))),
  ];
}
