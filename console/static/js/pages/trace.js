// The lifetime of one message as a diagram, across queues, brokers and sites.

import { h, put } from "../dom.js";
import { count, date, duration, text } from "../format.js";
import { badge, empty, failed, facts, loading, noteBox, panel } from "../parts/basics.js";
import { barList } from "../parts/bars.js";
import { form } from "../parts/form.js";
import { lifeDiagram } from "../parts/life.js";
import { to } from "../router.js";
import { page } from "./page.js";

const BY = [["id", "ID in the store or LSN"], ["message_id", "message-id"], ["correlation_id", "correlation-id"]];
const GOOD_ENDS = ["acknowledged", "accepted"];

export function tracePage(view) {
  const by = BY.map(([key]) => key).find((key) => view.query[key]) ?? "message_id";
  const result = h("div", {}, empty("Which message?", "Enter the ID of a message to see where it has been and why it left. The timeline of a message also opens from the message browser."));
  const { element, input } = form({
    label: "Show timeline",
    fields: [[
      { name: "by", label: "Find by", type: "select", options: BY, value: by },
      { name: "value", label: "Value", required: true, value: view.query[by] ?? "" },
      { name: "queue", label: "Queue", value: view.query.queue ?? "", help: "Optional" },
    ]],
    submit: ({ by: key, value, queue }) => show({ [key]: value, queue }),
  });

  async function show(query) {
    view.replaceQuery({ id: "", message_id: "", correlation_id: "", queue: "", ...query });
    put(result, loading(8));
    try {
      const found = await view.api.get("/history/trace", query, view.signal);
      const lives = found.messages ?? found.items ?? [found];
      put(result, lives.length ? lives.map(life) : empty("No such message", "Neither the log nor its archive has a record of it."));
    } catch (error) {
      if (!view.signal.aborted) put(result, failed(error, () => show(query)));
    }
  }

  if (input("value").value) show({ [by]: view.query[by], queue: view.query.queue });
  return page("Message timeline", { lead: "Where a message has been, for how long, and why it left." }, panel("Find a message", element), result);
}

function life(found) {
  const events = found.events ?? [];
  if (!events.length) return empty("No such message", "Neither the log nor its archive has a record of it.");
  const shown = events.map((one, number) => ({
    time: date(one.time)?.getTime() ?? null, lane: [one.store ?? one.site, one.queue].filter(Boolean).join(" · ") || "store", title: titleOf(one), isEnd: isEnd(one) && number === events.length - 1,
    detail: [one.text ?? one.detail, one.queue && h("a", { href: to`/queues/${one.queue}` }, one.queue), one.lsn !== undefined && `LSN ${one.lsn}`].filter(Boolean)
      .flatMap((part, place) => (place ? [" · ", part] : [part])),
  }));
  const last = events.at(-1);
  return h("div", { class: "stack" },
    found.complete === false && noteBox("warn", "A part of the history is not kept any more, so the timeline has gaps."),
    h("div", { class: "grid wide-first" }, panel("Lifetime", lifeDiagram(shown)),
      h("div", { class: "stack" }, panel("Time on each queue", stays(shown)), panel("Message", facts([
        ["State", badge(isEnd(last) ? titleOf(last) : "still on a queue", isEnd(last) && GOOD_ENDS.includes(last.kind) ? "good" : isEnd(last) ? "warn" : "info")],
        ["Events", count(events.length)],
        ...Object.entries(found.message ?? {}).map(([key, value]) => [key, typeof value === "object" && value ? h("pre", {}, JSON.stringify(value, null, 2)) : text(value)])])))));
}

const titleOf = (one) => { const words = String(one.title ?? one.kind ?? "event").replaceAll(/[_-]/g, " "); return words[0].toUpperCase() + words.slice(1); };
const isEnd = (one) => /acknowledg|accept|dequeue|expire|drop|purge|delete|remove|discard/.test(String(one.kind));

function stays(events) {
  const time = new Map();
  for (const [number, event] of events.entries()) {
    const until = events[number + 1]?.time ?? (event.isEnd ? event.time : Date.now());
    if (event.time !== null && until !== null) time.set(event.lane, (time.get(event.lane) ?? 0) + Math.max(0, until - event.time) / 1000);
  }
  return barList([...time].map(([label, seconds], number) => ({ label, value: seconds, text: duration(seconds), series: (number % 6) + 1 })));
}
