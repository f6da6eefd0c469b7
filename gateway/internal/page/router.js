// Every view is a URL: the part after # has the view, what it is about, and how it
// is searched, filtered and sorted.
import { notify } from "./store.js";

export function parse(hash = location.hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?");
  const [view, ...args] = path.split("/").map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
  return { view: view || "overview", args, query: new URLSearchParams(query) };
}

export function href(view, args = [], query = {}) {
  const set = Object.entries(query).filter(([, v]) => v !== "" && v !== undefined && v !== null);
  const text = new URLSearchParams(set).toString();
  return `#/${[view, ...args].map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

// setQuery changes how the present view is looked at. It is no step to go back from.
export function setQuery(changed) {
  const { view, args, query } = parse();
  for (const [name, value] of Object.entries(changed)) {
    if (value === "" || value === undefined || value === null) query.delete(name);
    else query.set(name, value);
  }
  history.replaceState(null, "", href(view, args, Object.fromEntries(query)));
  notify("route");
}

const viewOf = {
  networks: "networks",
  addresses: "addresses",
  allocations: "allocations",
  machines: "machines",
  clusters: "clusters",
  clustertemplates: "clustertemplates",
  backups: "backups",
  providers: "providers",
};

// to is the address of an item's own page.
export function to(topic, item) {
  if (topic === "hosts") return href("hosts", [], { q: item.name });
  if (topic === "vms") return href("hosts", [], { q: item.name });
  if (topic === "operators" || topic === "backends" || topic === "dependencies") return href("overview");
  if (topic === "functions") return href("pipeline");
  if (topic === "orphans") return item.provider ? href("providers", [item.provider]) : href("overview");
  return href(viewOf[topic], item.namespace ? [item.namespace, item.name] : [item.name]);
}
