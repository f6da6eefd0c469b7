// Settings are what the user has chosen, and the browser keeps. A browser that stores nothing for the page refuses each access: the choice then lasts
// until the page is closed.
const chosen = new Map();

export function setting(name) {
  if (chosen.has(name)) return chosen.get(name);
  try {
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}

export function choose(name, value) {
  chosen.set(name, value);
  try {
    localStorage.setItem(name, value);
  } catch {
    // chosen has it.
  }
}
