// Numbers and times as people read them.
const numbers = new Intl.NumberFormat("en");

export const count = (n) => numbers.format(n ?? 0);

export const plural = (n, one, many = one + "s") => `${count(n)} ${n === 1 ? one : many}`;

// span is a number of seconds with the one or two units that matter.
export function span(seconds) {
  const s = Math.max(0, seconds);
  // Conditions have whole seconds.
  if (s < 0.05) return "under 1 s";
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 120) return `${Math.round(s)} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  if (s < 172800) return `${Math.round(s / 3600)} h`;
  return `${Math.round(s / 86400)} d`;
}

// whole is span for times that go on, without tenths that would flicker.
export const whole = (seconds) => (seconds < 10 ? `${Math.max(0, Math.floor(seconds))} s` : span(seconds));

// ahead is how far the clock of the gateway is ahead of the clock of the browser, in milliseconds.
let ahead = 0;
// tolerance is how far both may differ, in milliseconds: a message needs a while, and some times have whole seconds.
const tolerance = 3000;

// setClock has ages counted by the clock of the gateway, by a time that it has just sent. Otherwise the wrong clock of a browser would show each
// wait as too long, or none.
export function setClock(time) {
  const difference = Date.parse(time) - Date.now();
  if (Math.abs(difference - ahead) > tolerance) ahead = Math.abs(difference) > tolerance ? difference : 0;
}

// now is the time of the gateway, in milliseconds.
export const now = () => Date.now() + ahead;

export const since = (time) => (now() - Date.parse(time)) / 1000;

export const age = (time) => (time ? whole(since(time)) : "");

export function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  let value = n ?? 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit++;
  }
  return `${value >= 100 || Number.isInteger(value) ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}

export const cores = (milli) => `${Number((milli / 1000).toFixed(1))}`;

export const percent = (part, all) => (all > 0 ? Math.round((100 * part) / all) : 0);

const clockFormat = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const dayFormat = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });

// written is a time in a format, or nothing for what is no time.
const written = (format, time) => (Number.isNaN(Date.parse(time)) ? "" : format.format(new Date(time)));

export const clock = (time) => written(clockFormat, time);

// moment is a time of the last or the next twelve hours by the clock, and any other one with its day.
export const moment = (time) => written(Math.abs(since(time)) < 43200 ? clockFormat : dayFormat, time);

// place is where an object is, as it is written in URLs and commands.
export const place = (item) => (item.namespace ? `${item.namespace}/${item.name}` : item.name);

export function quantile(sorted, q) {
  return sorted.length === 0 ? undefined : sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))];
}

// shorten cuts a text in the middle, where names differ least.
export function shorten(text, most) {
  if (text.length <= most) return text;
  const tail = Math.floor((most - 1) / 2);
  return `${text.slice(0, most - 1 - tail)}…${text.slice(-tail)}`;
}
