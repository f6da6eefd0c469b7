// The first steps in an empty installation: a machine provider, a network and a cluster, with manifests to copy that fit this
// installation and the network that the user describes, and what is still missing.
import { badge, copyButton, h, link } from "./dom.js";
import { formatAddress, parseAddress, parsePrefix } from "./addressmap.js";
import { href, to } from "./router.js";
import { newestKubernetes } from "./reasons.js";
import { all, brokenOf, notify } from "./store.js";
import { assess } from "./advice.js";
import { layers } from "./kinds.js";
import { humanize } from "./texts.js";

// described is what the user has written about the network.
const described = { namespace: "team-a", prefix: "", gateway: "", vlan: "" };

// isInstallationEmpty reports whether nothing has been declared that runs.
export const isInstallationEmpty = () => all("clusters").length + all("machines").length === 0;

const kubevirt = () => `apiVersion: vitistack.io/v1alpha1
kind: MachineProvider
metadata:
  name: kubevirt
spec:
  type: kubevirt
  default: true
`;

const proxmox = () => `apiVersion: v1
kind: Secret
metadata:
  name: proxmox
  namespace: vitistack-system
stringData:
  tokenID: USER@REALM!TOKEN      # write the API token of Proxmox VE
  tokenSecret: SECRET
---
apiVersion: vitistack.io/v1alpha1
kind: MachineProvider
metadata:
  name: proxmox
spec:
  type: proxmox
  default: true
  endpoint:
    url: https://HOST:8006       # write the address of a node
  credentialsRef:
    name: proxmox
    namespace: vitistack-system
  defaults:
    storageClass: local-lvm
    bridge: vmbr0
`;

// segment returns what the described network is: {problem} or {prefix, gateway, first, last, vlan}.
export function segment({ prefix, gateway, vlan }) {
  const range = parsePrefix(prefix.trim());
  if (!range || range.v6) return { problem: "Write an IPv4 prefix, for example 10.20.30.0/24." };
  if (range.size < 16n) return { problem: "Write a prefix with at least 16 addresses: /28 or larger." };
  const door = gateway.trim() ? parseAddress(gateway.trim()) : range.first + 1n;
  if (door === undefined || door <= range.first || door >= range.last) return { problem: `Write a gateway in ${prefix.trim()}.` };
  const tag = vlan.trim() === "" ? 0 : Number(vlan);
  if (!Number.isInteger(tag) || tag < 0 || tag > 4094) return { problem: "Write a VLAN from 1 to 4094, or nothing for an untagged network." };
  const text = (n) => formatAddress(n, false);
  // Addresses below the tenth are left to routers and servers, except in small networks.
  const first = range.first + (range.size >= 64n ? 10n : 2n);
  return { prefix: `${text(range.first)}/${prefix.trim().split("/")[1]}`, gateway: text(door), first: text(first), last: text(range.last - 1n), excluded: door >= first ? text(door) : "", vlan: tag };
}

// networkManifest allows a namespace its network, and requests it.
export const networkManifest = (namespace, s) => `apiVersion: v1
kind: Namespace
metadata:
  name: ${namespace}
---
apiVersion: vitistack.io/v1alpha1
kind: NetworkPool
metadata:
  name: ${namespace}
spec:
  prefixes: [${s.prefix}]
  vlans: ["${s.vlan}"]
  allowedNamespaces:
    list: [${namespace}]
---
apiVersion: vitistack.io/v1alpha2
kind: NetworkNamespace
metadata:
  name: network
  namespace: ${namespace}
spec:
  datacenterIdentifier: datacenter-1
  supervisorIdentifier: ${namespace}
  networkProvisioning:
    provider: manual
    manual:
      ipv4CIDR: ${s.prefix}
      ipv4Gateway: ${s.gateway}${s.vlan ? `\n      vlanId: ${s.vlan}` : ""}
  ipAllocation:
    type: static
    static:
      ipv4RangeStart: ${s.first}
      ipv4RangeEnd: ${s.last}${s.excluded ? `\n      excludedAddresses: [${s.excluded}]` : ""}
      dns: [${s.gateway}]
`;

// clusterManifest requests a small cluster in the network of a namespace.
export const clusterManifest = (namespace, network) => `apiVersion: vitistack.io/v1alpha1
kind: KubernetesCluster
metadata:
  name: first
  namespace: ${namespace}
spec:
  data:
    provider: talos
  networkNamespaceName: ${network}
  topology:
    version: "${Object.values(newestKubernetes).at(-1)}"
    controlplane:
      replicas: 1
    workers:
      - name: workers
        replicas: 1
`;

function manifest(title, yaml) {
  return h("div", { class: "file" }, copyButton(`kubectl apply -f - <<'EOF'\n${yaml}EOF\n`, `the command that applies ${title}`), h("pre", { tabindex: "0", "aria-label": title }, yaml));
}

const input = (name, title, placeholder) =>
  h(
    "label",
    { class: "field", key: name },
    h("span", {}, title),
    h("input", {
      id: `first-${name}`,
      value: described[name],
      placeholder,
      autocomplete: "off",
      spellcheck: "false",
      oninput: (e) => {
        described[name] = e.target.value;
        notify("state");
      },
    }),
  );

// troubles lists the objects of a topic that are there and not ready.
const troubles = (topic) =>
  all(topic)
    .filter((i) => !i.ready)
    .map((i) =>
      h("p", { key: i.id }, badge(assess(i).state, i.phase), " ", link(to(topic, i), i.name), `: ${[humanize(i.reason), i.message].filter(Boolean).join(": ")}. ${assess(i).todo}`),
    );

function providerStep() {
  const nodes = all("hosts").some((x) => x.type === "kubevirt" && x.local);
  return [
    h(
      "p",
      {},
      nodes
        ? "This cluster has nodes on which KubeVirt runs virtual machines. This manifest lets the stack use them:"
        : "This cluster has no node on which KubeVirt runs virtual machines: install KubeVirt, or write the address and the token of a Proxmox VE cluster into this manifest:",
    ),
    nodes ? manifest("the machine provider", kubevirt()) : manifest("the machine provider", proxmox()),
  ];
}

function networkStep() {
  const found = segment(described);
  const named = /^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$/.test(described.namespace);
  return [
    h("p", {}, "Describe the network that your machines are to be in. It has to exist: the stack creates no VLAN on your switches."),
    h("div", { class: "filters" }, input("namespace", "Namespace", "team-a"), input("prefix", "Prefix", "10.20.30.0/24"), input("gateway", "Gateway", "the first address"), input("vlan", "VLAN", "untagged")),
    found.problem || !named
      ? h("p", { class: "note" }, named ? found.problem : "Write the name of a namespace: lower case letters, digits and -.")
      : manifest("the network", networkManifest(described.namespace, found)),
  ];
}

function clusterStep() {
  const network = all("networks").find((n) => n.ready) ?? all("networks")[0];
  return [h("p", {}, "A control plane and a worker, as a first cluster:"), manifest("the cluster", clusterManifest(network?.namespace ?? described.namespace, network?.name ?? "network"))];
}

// firstSteps describes the steps, with the state of each.
export function firstSteps() {
  const broken = layers.flatMap((l) => brokenOf(l));
  const steps = [
    ["A machine provider, which runs virtual machines", all("providers"), "providers", providerStep],
    ["A network for a namespace", all("networks"), "networks", networkStep],
    ["A cluster", all("clusters"), "clusters", clusterStep],
  ];
  return h(
    "section",
    { class: "guide", "aria-labelledby": "guide-title" },
    h("h2", { id: "guide-title" }, "First steps"),
    broken.length > 0 &&
      h("p", { class: "note bad" }, `${broken.map((f) => f.name).join(", ")} does not run: check the Knative Services first (kubectl get ksvc -A). Nothing is created without it.`),
    h(
      "ol",
      { class: "plain" },
      steps.map(([title, items, topic, content], n) => {
        const ready = items.filter((i) => i.ready).length;
        const state = ready ? "good" : items.length ? "wait" : "idle";
        return h(
          "li",
          { key: topic, class: "card" },
          h("h3", {}, `${n + 1}. ${title} `, badge(state, ready ? "done" : items.length ? "not ready yet" : "missing")),
          troubles(topic),
          items.length === 0 && content(),
        );
      }),
    ),
    h("p", { class: "soft small" }, "All fields have descriptions: kubectl explain kubernetescluster.spec. ", link(href("hosts"), "Hypervisors"), "."),
  );
}
