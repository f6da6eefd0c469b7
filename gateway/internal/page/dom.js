// Views describe the document by plain objects, and patch changes a part of the
// page to match. It does not touch elements that already match: focus, selection and scroll
// positions stay where they are while things change around them.
const svgSpace = "http://www.w3.org/2000/svg";
const properties = new Set(["value", "checked", "selected", "open", "disabled", "scrollTop"]);

// h describes an element. props may have key, by which patch finds the element
// again among its siblings, ref, a function that gets the element, and handlers.
export function h(tag, props, ...children) {
  const kids = [];
  gather(children, kids);
  return { tag, props: props ?? {}, key: props?.key, kids };
}

function gather(children, into) {
  for (const child of children) {
    if (Array.isArray(child)) gather(child, into);
    else if (child !== null && child !== undefined && child !== false && child !== "")
      into.push(typeof child === "object" ? child : String(child));
  }
}

// patch replaces the children of an element by the described ones.
export function patch(parent, described) {
  const kids = [];
  gather([described], kids);
  const wanted = new Set();
  for (const kid of kids) if (kid.key !== undefined) wanted.add(kid.key);
  const keyed = new Map();
  for (const node of [...parent.childNodes]) {
    if (node.vKey === undefined) continue;
    if (wanted.has(node.vKey)) keyed.set(node.vKey, node);
    else node.remove();
  }
  let at = parent.firstChild;
  for (const kid of kids) {
    const node = match(kid, at, keyed, parent);
    if (node === at) at = at.nextSibling;
    else place(parent, node, at);
    if (typeof kid === "object") update(node, kid);
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

function match(kid, at, keyed, parent) {
  if (typeof kid === "string") {
    const node = at?.nodeType === Node.TEXT_NODE ? at : document.createTextNode(kid);
    if (node.nodeValue !== kid) node.nodeValue = kid;
    return node;
  }
  if (kid.key !== undefined) {
    const node = keyed.get(kid.key);
    return node?.vTag === kid.tag ? node : create(kid, parent);
  }
  return at?.vTag === kid.tag && at.vKey === undefined ? at : create(kid, parent);
}

// place puts a node in front of another one. moveBefore keeps focus and animations
// of a node that is there already.
function place(parent, node, before) {
  if (node.isConnected && node.parentNode === parent && parent.moveBefore) parent.moveBefore(node, before);
  else parent.insertBefore(node, before);
}

function create(kid, parent) {
  const svg = kid.tag === "svg" || (parent.namespaceURI === svgSpace && parent.localName !== "foreignObject");
  const node = svg ? document.createElementNS(svgSpace, kid.tag) : document.createElement(kid.tag);
  node.vTag = kid.tag;
  node.vKey = kid.key;
  node.vProps = {};
  return node;
}

function update(node, { props, kids }) {
  const before = node.vProps ?? {};
  for (const name in before) if (!(name in props)) set(node, name, undefined);
  if (!props.opaque) patch(node, kids);
  for (const name in props) if (before[name] !== props[name] || name === "value") set(node, name, props[name]);
  node.vProps = props;
  node.vTag ??= node.localName;
  props.ref?.(node);
}

function set(node, name, value) {
  if (name === "key" || name === "ref" || name === "opaque") return;
  if (name.startsWith("on")) node[name] = value ?? null;
  else if (name === "style") for (const part in value ?? {}) node.style.setProperty(part, value[part]);
  else if (properties.has(name)) {
    if (node[name] !== (value ?? "")) node[name] = value ?? "";
  } else if (value === undefined || value === null || value === false) node.removeAttribute(name);
  else node.setAttribute(name, value === true ? "" : value);
}

// icon returns a mark that distinguishes states without colour.
const marks = {
  good: "M3 8.5l3.2 3.2L13 4.8",
  bad: "M4 4l8 8M12 4l-8 8",
  wait: "M8 3.5V8l3 2",
  idle: "M4 8h8",
  act: "M8 3v6M8 12v.6",
};

export function icon(state) {
  return h(
    "svg",
    { class: `icon ${state}`, viewBox: "0 0 16 16", width: 16, height: 16, "aria-hidden": "true", focusable: "false" },
    h("circle", { cx: 8, cy: 8, r: 7.25 }),
    h("path", { d: marks[state] ?? marks.idle }),
  );
}

// badge is a state as a mark and a word.
export const badge = (state, text) => h("span", { class: `badge ${state}` }, icon(state), text);

export const link = (href, text, props) => h("a", { href, ...props }, text);

// copy puts text on the clipboard, also where the page is not served by TLS.
async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = Object.assign(document.createElement("textarea"), { value: text });
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}

// copyButton copies a text, and says so.
export function copyButton(text, what) {
  return h(
    "button",
    {
      type: "button",
      class: "small copy",
      "aria-label": `Copy ${what}`,
      onclick: async (e) => {
        const button = e.currentTarget;
        await copy(text);
        button.dataset.done = "true";
        document.getElementById("news").textContent = `Copied ${what}.`;
        setTimeout(() => delete button.dataset.done, 1500);
      },
    },
    "Copy",
  );
}
