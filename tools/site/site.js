// The search of the documentation. Each entry of searchIndex is a section of a page.
const input = document.getElementById("search");
const results = document.getElementById("results");
const article = document.querySelector("article");
const shown = 30;

// score returns how well an entry fits to all words, and 0 if it lacks one.
function score(entry, words) {
  const heading = entry.heading.toLowerCase();
  const text = entry.text.toLowerCase();
  const page = entry.page.toLowerCase();
  let sum = 0;
  for (const word of words) {
    const points = (heading === word ? 40 : 0) + (heading.includes(word) ? 10 : 0) + (page.includes(word) ? 4 : 0) + (text.includes(word) ? 1 : 0);
    if (points === 0) return 0;
    sum += points;
  }
  return sum;
}

// excerpt returns the text around the first word that it contains, with each word marked.
function excerpt(text, words) {
  const lower = text.toLowerCase();
  const at = Math.max(0, Math.min(...words.map((w) => lower.indexOf(w)).filter((i) => i >= 0), text.length) - 60);
  const part = (at > 0 ? "… " : "") + text.slice(at, at + 220) + (text.length > at + 220 ? " …" : "");
  const p = document.createElement("p");
  const pattern = new RegExp(`(${words.map((w) => w.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("|")})`, "ig");
  part.split(pattern).forEach((piece, i) => {
    if (i % 2 === 0) return p.append(piece);
    const mark = document.createElement("mark");
    mark.textContent = piece;
    p.append(mark);
  });
  return p;
}

function search() {
  const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
  article.hidden = words.length > 0;
  results.hidden = words.length === 0;
  results.replaceChildren();
  if (words.length === 0) return;
  const found = window.searchIndex
    .map((entry) => ({ entry, points: score(entry, words) }))
    .filter((f) => f.points > 0)
    .sort((a, b) => b.points - a.points);
  const title = document.createElement("h2");
  title.textContent = found.length === 0 ? `Nothing has the words “${input.value.trim()}”. Try fewer words.` : `${found.length} ${found.length === 1 ? "section" : "sections"}`;
  const list = document.createElement("ol");
  for (const { entry } of found.slice(0, shown)) {
    const item = document.createElement("li");
    const link = document.createElement("a");
    link.href = document.body.dataset.root + entry.link;
    link.textContent = entry.heading === entry.page ? entry.page : `${entry.page}: ${entry.heading}`;
    link.addEventListener("click", clear);
    item.append(link, excerpt(entry.text, words));
    list.append(item);
  }
  results.append(title, list);
}

// clear shows the page again, also where a result is a section of it.
function clear() {
  input.value = "";
  search();
}

input.addEventListener("input", search);
input.form.addEventListener("submit", (event) => {
  event.preventDefault();
  results.querySelector("a")?.click();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && document.activeElement !== input) {
    event.preventDefault();
    input.focus();
  }
  if (event.key === "Escape" && document.activeElement === input) clear();
});

const menu = document.getElementById("menu");
menu.addEventListener("click", () => {
  const open = document.getElementById("navigation").classList.toggle("open");
  menu.setAttribute("aria-expanded", String(open));
});
document.querySelector("nav [aria-current]")?.scrollIntoView({ block: "nearest" });
