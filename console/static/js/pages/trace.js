// The lifetime of one message as a diagram, across queues, brokers and sites.

import { h, put } from "../dom.js";
import { amount, bytes, count, date, duration, text } from "../format.js";
import { badge, empty, facts, noteBox, panel } from "../parts/basics.js";
import { barList } from "../parts/bars.js";
import { copyLink } from "../parts/copy.js";
import { form } from "../parts/form.js";
import { lifeDiagram } from "../parts/life.js";
import { question } from "../parts/question.js";
import { to } from "../router.js";
import { page } from "./page.js";

const BY = [["id", "ID in the store or LSN"], ["message_id", "message-id"], ["correlation_id", "correlation-id"]];
const GOOD_ENDS = ["acknowledged", "accepted"];
const ENDS = ["dequeued", "deleted", "purged", "queue deleted"];
const MOVED = "relocated";

export function tracePage(view) {
  const by = BY.map(([key]) => key).find((key) => view.query[key]) ?? "message_id";
  const { element: result, ask } = question(view);
  put(result, empty("Which message?", "Enter the ID of a message to see where it has been and why it left. The timeline of a message also opens from the message browser."));
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
    await ask((signal) => view.api.get("/history/trace", query, signal), (found) => {
      const lives = joined(found.messages);
      return [found.remarks.map((one) => noteBox("info", one)),
        lives.length ? lives.map(life) : empty("No such message", "Neither the log nor its archive has a record of it.")];
    });
  }

  if (input("value").value) show({ [by]: view.query[by] });
  return page("Message timeline", { lead: "The queues that a message was on, for how long, and why it left them.", actions: [copyLink()] }, panel("Find a message", element), result);
}

/** Lifetimes on several brokers become one if they have the same message-id: events in the order of time, copies in the order of brokers. */
function joined(lives) {
  const groups = Map.groupBy(lives, (one) => one.message["message-id"] ?? one);
  return [...groups.values()].flatMap((parts) => (new Set(parts.map((one) => one.store)).size > 1 ? [merged(parts)] : parts));
}

function merged(parts) {
  const timed = parts.flatMap(({ events }) => {
    let latest = 0;
    return events.map((one) => ({ one, time: (latest = Math.max(latest, one.time ?? 0)) }));
  });
  return { parts, message: parts[0].message, complete: parts.every((one) => one.complete), events: timed.sort((a, b) => a.time - b.time).map(({ one }) => one) };
}

function life(found) {
  const records = (found.events ?? []).filter((one, number, all) => !(number && ["lsn", "kind", "store"].every((key) => all[number - 1][key] === one[key])));
  if (!records.length) return empty("No such message", "Neither the log nor its archive has a record of it.");
  const events = records.filter((one) => one.kind !== MOVED);
  const moves = records.length - events.length;
  const parts = found.parts ?? [found];
  const isJoined = parts.some((one) => one.store !== null);
  const placeOf = (queue, store) => (isJoined ? `${queue} at ${siteOf(store)}` : queue);
  const on = parts.flatMap((part) => Object.values(part.on ?? {}).flat().map((queue) => ({ queue, store: part.store })));
  const open = new Set(on.map((one) => placeOf(one.queue, one.store)));
  const places = new Map();
  const shown = events.map((one) => {
    places.set(one.store, one.queue ?? places.get(one.store) ?? "store");
    return { time: date(one.time)?.getTime() ?? null, lane: placeOf(places.get(one.store), one.store), title: titleOf(one), isEnd: ENDS.includes(one.kind), isMinor: !one.queue,
      detail: [isJoined && [badge(siteOf(one.store), one.store === null ? "" : "info"), " "], [one.text, one.queue && queueLink(one.queue, one.store), lsnLink(one)].filter(Boolean)
        .flatMap((part, number) => (number ? [" · ", part] : [part]))] };
  });
  return h("div", { class: "stack" },
    found.complete === false && noteBox("warn", "A part of the history is not kept any more, so the timeline has gaps."),
    isJoined && noteBox("info", "The events of several brokers, in the order of their times. Each broker has a clock of its own."),
    h("div", { class: "grid wide-first" }, panel("Lifetime", lifeDiagram(shown, open)),
      h("div", { class: "stack" }, panel("Time on each queue", stays(shown, open)), panel("Message", facts([
        ["State", stateOf(events, open)], ["Events", count(events.length)],
        ["Copies by the store", moves > 0 && `${amount(moves, "record")} copied to the end of the log`],
        ...Object.entries(found.message ?? {}).filter(([key]) => key !== "ids" || !isJoined).map(([key, value]) => [labelOf(key), valueOf(key, value)]),
        ...(isJoined ? parts : []).map((one) => [`IDs at ${siteOf(one.store)}`, valueOf("ids", one.message.ids)]),
        ["On", on.length > 0 && h("div", { class: "badges" }, on.map((one) => queueLink(one.queue, one.store, "badge", placeOf(one.queue, one.store))))]])))));
}

/** A link to the queues at this point of the log. */
const lsnLink = (one) => (one.store === null ? h("a", { href: `#/time?to=${one.lsn}`, title: "Show the queues at this point" }, `LSN ${one.lsn}`) : `LSN ${one.lsn}`);
const siteOf = (store) => store ?? "this broker";
const queueLink = (queue, store, kind = null, label = queue) => (store === null ? h("a", { class: kind, href: to`/queues/${queue}` }, label) : h("span", { class: kind }, label));
const capitalized = (text) => { const words = text.replaceAll("_", " "); return words[0].toUpperCase() + words.slice(1); };
const titleOf = (one) => capitalized(String(one.kind ?? "event"));
const labelOf = (key) => ({ ids: "IDs in the store", size: "Size", "application-properties": "Properties" })[key] ?? key;

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
