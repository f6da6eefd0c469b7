// What an item that is not ready means: its state, the role that has to act, and what to do. The message of a function
// says what has happened.
import { h } from "./dom.js";
import { kindOf } from "./kinds.js";
import { conditionsPage, overdue, reasons } from "./reasons.js";

// Each rule is a pattern of phases, and of reasons that backends and Knative choose, with the role that has to act and what to do.
// The first matching rule applies. reasons.js has the reasons of the functions.
const rules = [
  [/^(Provisioning|Starting|Stopping|Creating|Releasing|Deleting|Waiting|Pending|Scheduling)$/, "no action", "No action: the stack continues by itself."],
  [
    /^(Unreachable|Unavailable|Offline|NotReachable|Degraded|Unhealthy)$/,
    "platform team",
    "Check that the backend runs and is reachable. The stack retries automatically.",
  ],
  [
    /^(Unschedulable|ErrorUnschedulable|NoCapacity)$/,
    "platform team",
    "Add capacity to the hypervisors: add a node, or remove machines.",
  ],
  [/^(Unauthorized|Forbidden|Untrusted)$/, "platform team", "Check the credentials and certificates for the backend."],
  [/^(DataVolume\w*|ErrorPvcNotFound|ErrImagePull|ImagePullBackOff)$/, "platform team", "Provide the storage class or image in the message, or choose another one."],
  [/^(NotReady|NodesNotReady|CrashLoopBackOff)$/, "platform team", "Check the object named in the message and its logs."],
];

// adviceFor returns the role that has to act for an item, and what it does, or nothing. The gateway decides that for warnings, and for clusters
// whose ClusterTemplate is wrong.
function adviceFor(item) {
  if (item.turn) return { who: item.turn, todo: item.remedy };
  const known = reasons[`${kindOf[item.topic]}/${item.reason}`] ?? reasons[item.reason];
  if (known) return { who: known[0], todo: known[1] };
  const rule = rules.find(([pattern]) => pattern.test(item.reason || item.phase || ""));
  if (rule) return { who: rule[1], todo: rule[2] };
  if (!item.reason || !stackTopics.includes(item.topic)) return undefined;
  if (item.topic === "networks") return { who: "network team", todo: "Follow the message of the provider of networks." };
  return { who: "platform team", todo: `Follow the message. This version of the page does not know the reason ${item.reason}.` };
}

const stackTopics = ["networks", "addresses", "allocations", "machines", "providers", "clusters", "clustertemplates", "backups"];

// waitsFor returns the kinds of the objects that an item of a topic waits for, by its reason.
export const waitsFor = (item, topic) => (reasons[`${kindOf[topic]}/${item.reason}`] ?? reasons[item.reason])?.[2] ?? [];

// aboutReason returns a link to the section of the documentation about the reason of an item or a condition, or nothing.
export function aboutReason(reason, topic) {
  if (!reason || !(reasons[`${kindOf[topic]}/${reason}`] ?? reasons[reason])) return undefined;
  return h("a", { class: "about", href: `${conditionsPage}#${reason.toLowerCase()}`, target: "_blank", rel: "noreferrer" }, `About ${reason}`);
}

// assessOverdue returns the assessment of an item of a topic that has waited too long: a role has to find out why.
export function assessOverdue(v, topic) {
  const [who, todo] = overdue[kindOf[topic]] ?? overdue.Other;
  return { ...v, who, waits: false, todo };
}

// pauseOf returns the warning about the annotation vitistack.io/paused, which keeps every function from changing the object of an item, or nothing.
export const pauseOf = (item) => item.warnings?.find((w) => w.type === "Paused");

// assess returns the state of an item (good, wait, act, bad or idle), the role that has to act, and what to do.
export function assess(item) {
  const pause = pauseOf(item);
  if (pause && !item.condition) return { state: item.status === "failed" ? "bad" : "act", who: pause.turn, waits: false, todo: pause.remedy };
  const advice = adviceFor(item);
  const who = advice?.who ?? (item.status === "failed" ? "platform team" : "no action");
  let state = "wait";
  if (item.ready) state = /^(Stopped|Paused)$/.test(item.reason ?? "") ? "idle" : "good";
  else if (item.status === "failed" || ["unhealthy", "unreachable"].includes(item.status)) state = "bad";
  else if (who !== "no action") state = "act";
  else if (item.deleting) state = "idle";
  if (item.function && !item.ready) {
    return {
      state: "bad",
      who: "platform team",
      waits: false,
      todo: "Check its Knative Service and its log: the events of its layer wait until it runs.",
    };
  }
  const todo = "schedulable" in item && item.status !== "unknown" ? "Repair or remove the node: until then the other nodes carry its load." : advice?.todo;
  const turn = item.owner ?? who;
  return { state, who: turn, waits: turn === "no action", todo: todo ?? "See the message for details." };
}
