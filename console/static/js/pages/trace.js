// The lifetime of one message as a diagram, across queues, brokers and sites.

import { h, put } from "../dom.js";
import { amount, bytes, count, date, duration, text } from "../format.js";
import { badge, empty, failed, facts, loading, noteBox, panel } from "../parts/basics.js";
import { barList } from "../parts/bars.js";
import { form } from "../parts/form.js";
import { lifeDiagram } from "../parts/life.js";
import { to } from "../router.js";
import { page } from "./page.js";

const BY = [["id", "ID in the store or LSN"], ["message_id", "message-id"], ["correlation_id", "correlation-id"]];
const GOOD_ENDS = ["acknowledged", "accepted"];
const ENDS = ["dequeued", "deleted", "purged", "queue deleted"];
const MOVED = "relocated";

export function tracePage(view) {
  const by = BY.map(([key]) => key).find((key) => view.query[key]) ?? "message_id";
  const result = h("div", { class: "stack" }, empty("Which message?", "Enter the ID of a message to see where it has been and why it left. The timeline of a message also opens from the message browser."));
  const { element, input } = form({
    label: "Show timeline",
    fields: [[
      { name: "by", label: "Find by", type: "select", options: BY, value: by },
      { name: "value", label: "Value", required: true, value: view.query[by] ?? "" },
    ]],
    submit: ({ by: key, value }) => show({ [key]: value }),
  });

  async function show(query) {
    view.replaceQuery({ id: "", message_id: "", correlation_id: "", ...query });
    put(result, loading(8));
    try {
      const found = await view.api.get("/history/trace", query, view.signal);
      const lives = found.messages;
      put(result, lives.length ? lives.map(life) : empty("No such message", "Neither the log nor its archive has a record of it."));
    } catch (error) {
      if (!view.signal.aborted) put(result, failed(error, () => show(query)));
    }
  }

  if (input("value").value) show({ [by]: view.query[by] });
  return page("Message timeline", { lead: "The queues that a message was on, for how long, and why it left them." }, panel("Find a message", element), result);
}

function life(found) {
  const records = (found.events ?? []).filter((one, number, all) => !(number && all[number - 1].lsn === one.lsn && all[number - 1].kind === one.kind));
  if (!records.length) return empty("No such message", "Neither the log nor its archive has a record of it.");
  const events = records.filter((one) => one.kind !== MOVED);
  const moves = records.length - events.length;
  const open = new Set(Object.values(found.on ?? {}).flat());
  let place = "store";
  const shown = events.map((one) => {
    place = one.queue ?? place;
    return { time: date(one.time)?.getTime() ?? null, lane: place, title: titleOf(one), isEnd: ENDS.includes(one.kind), isMinor: !one.queue,
      detail: [one.text, one.queue && h("a", { href: to`/queues/${one.queue}` }, one.queue), `LSN ${one.lsn}`].filter(Boolean)
        .flatMap((part, number) => (number ? [" · ", part] : [part])) };
  });
  return h("div", { class: "stack" },
    found.complete === false && noteBox("warn", "A part of the history is not kept any more, so the timeline has gaps."),
    h("div", { class: "grid wide-first" }, panel("Lifetime", lifeDiagram(shown, open)),
      h("div", { class: "stack" }, panel("Time on each queue", stays(shown, open)), panel("Message", facts([
        ["State", stateOf(events, open)], ["Events", count(events.length)],
        ["Copies by the store", moves > 0 && `${amount(moves, "record")} copied to the end of the log`],
        ...Object.entries(found.message ?? {}).map(([key, value]) => [labelOf(key), valueOf(key, value)]),
        ["On", open.size > 0 && h("div", { class: "badges" }, [...open].map((one) => h("a", { class: "badge", href: to`/queues/${one}` }, one)))]])))));
}

const capitalized = (text) => { const words = text.replaceAll("_", " "); return words[0].toUpperCase() + words.slice(1); };
const titleOf = (one) => capitalized(String(one.kind ?? "event"));
const labelOf = (key) => ({ ids: "IDs in the store", size: "Size" })[key] ?? key;

function valueOf(key, value) {
  if (key === "size") return value ? bytes(value) : null;
  if (key === "ids") return value.join(", ");
  if (value && typeof value === "object") return h("div", {}, Object.entries(value).map(([name, one]) => h("div", {}, h("code", {}, name), " ", text(one))));
  return value === null ? null : text(value);
}

function stateOf(events, open) {
  if (open.size) return badge(open.size === 1 ? "on a queue" : `on ${open.size} queues`, "info");
  const reason = events.findLast((one) => ENDS.includes(one.kind))?.more?.reason;
  return badge(reason ? `removed: ${reason}` : "removed", !reason || GOOD_ENDS.includes(reason) ? "good" : "warn");
}

/** How long the message was on each queue: from its first event there until it left, or until now. */
function stays(events, open) {
  const lanes = [...new Set(events.filter((one) => !one.isMinor).map((one) => one.lane))];
  return barList(lanes.map((lane, number) => {
    const own = events.filter((one) => one.lane === lane && one.time !== null);
    const until = open.has(lane) ? Date.now() : own.at(-1)?.time;
    const seconds = own.length ? Math.max(0, until - own[0].time) / 1000 : 0;
    return { label: lane, value: seconds, text: `${duration(seconds)}${open.has(lane) ? " so far" : ""}`, series: (number % 6) + 1 };
  }));
}
