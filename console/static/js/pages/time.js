// The time slider: contents of the queues at any point, the difference of two points, and the replay of a range.

import { h, put } from "../dom.js";
import { amount, bytes, count, date, exact, text, time } from "../format.js";
import { badge, button, empty, noteBox, panel, segments } from "../parts/basics.js";
import { barList } from "../parts/bars.js";
import { copyLink } from "../parts/copy.js";
import { form } from "../parts/form.js";
import { dialog } from "../parts/dialog.js";
import { question } from "../parts/question.js";
import { region } from "../parts/region.js";
import { timeSlider } from "../parts/time_slider.js";
import { toast } from "../parts/toast.js";
import { to } from "../router.js";
import { page } from "./page.js";

const MODES = [["contents", "Contents"], ["difference", "Difference"], ["replay", "Replay"]];
const LEADS = {
  contents: "What was on the queues at this point?", difference: "Which messages came and went between these two points?", replay: "Send the messages that arrived in this range again.",
};

export function timePage(view) {
  let shown = null;
  const { element } = region(view, { lines: 8, load: (signal) => view.api.get("/history/range", {}, signal), paint: (range) => shown ??= explorer(view, range) });
  return page("Time slider", { lead: "The contents of the queues at any point in time that the journal still holds.", actions: [copyLink()] }, element);
}

function explorer(view, range) {
  let mode = view.query.mode ?? "contents";
  let queue = view.query.queue ?? "";
  const [first, last] = [Number(range.first_lsn), Number(range.last_lsn)];
  if (!(last > first)) return empty("No history yet", "The journal does not hold any messages.");
  const known = (key, otherwise) => (Number(view.query[key]) >= first && Number(view.query[key]) <= last ? Number(view.query[key]) : otherwise);
  let points = [known("from", first + Math.floor((last - first) / 3)), known("to", last)];
  const place = h("div");
  const lead = h("p", { class: "muted" });
  const chosen = h("div", { class: "row" });
  const { element: result, ask } = question(view);
  const filter = h("input", { class: "input", type: "text", placeholder: "All queues", "aria-label": "Queue", value: queue, autocomplete: "off", spellcheck: "false",
    onchange: () => { queue = filter.value.trim(); show(); } });

  const goTo = form({ label: "Go", kind: "", fields: [{ name: "at", label: "Go to", placeholder: "LSN, time, or 10m", required: true }], submit: async ({ at }) => {
    const { lsn } = await view.api.get("/history/contents", { at, queue, limit: 1 }, view.signal);
    const point = Math.min(Math.max(Number(lsn), first), last);
    points = [Math.min(points[0], point), point];
    draw();
  } });

  const timeAt = (lsn) => {
    const [start, end] = [date(range.first_time), date(range.last_time)];
    return start && end ? `≈ ${exact(start.getTime() + ((end - start) * (lsn - first)) / (last - first)).replace(/\.\d+$/, "")}` : "";
  };
  const describe = (lsn) => `LSN ${count(lsn)}${range.first_time ? ` ${timeAt(lsn)}` : ""}`;

  function draw() {
    const isPair = mode !== "contents";
    put(lead, LEADS[mode]);
    put(place, timeSlider({ first, last, values: isPair ? points : [points[1]], describe, names: isPair ? ["From", "To"] : ["Point in time"],
      bars: (range.activity ?? []).map((one) => ({ value: one.count ?? one.value ?? one })), change: (given) => {
        points = isPair ? given : [Math.min(points[0], given[0]), given[0]];
        show();
      } }).element);
    show();
  }

  async function show() {
    view.replaceQuery({ mode: mode === "contents" ? "" : mode, queue, from: mode === "contents" ? "" : points[0], to: points[1] });
    put(chosen, mode === "contents" ? badge(describe(points[1]), "info") : [badge(describe(points[0]), "info"), "to", badge(describe(points[1]), "info")]);
    await ask({ contents, difference, replay }[mode], (painted) => painted);
  }

  async function contents(signal) {
    const found = await view.api.get("/history/contents", { at: points[1], queue }, signal);
    const { queues, items, total } = found;
    return h("div", { class: queues.length ? "grid narrow-first" : "stack" }, queues.length > 0 && panel("Queues", barList(queues.map((one) => ({ label: h("a", { href: to`/queues/${one.queue}` }, one.queue),
      value: one.messages, text: `${count(one.messages)} · ${bytes(one.bytes)}` })))), h("div", { class: "stack" }, remarks(found),
    panel(`Messages: ${count(total)}`, [items.length < total && h("p", { class: "muted inset" }, `The first ${count(items.length)} are shown. Name a queue to see its messages.`),
      messageTable(items, "The queues were empty at this point.")], { flush: true })));
  }

  async function difference(signal) {
    const found = await view.api.get("/history/difference", { from: points[0], to: points[1], queue }, signal);
    const { queues, items } = found;
    const total = queues.reduce((sum, one) => sum + one.added + one.removed, 0);
    return h("div", { class: "stack" }, queues.length > 0 && panel("Queues", barList(queues.map((one) => ({ label: h("a", { href: to`/queues/${one.queue}` }, one.queue),
      value: one.added + one.removed, text: [one.added > 0 && `${count(one.added)} added`, one.removed > 0 && `${count(one.removed)} removed`, one.passed > 0 && `${count(one.passed)} passed through`]
        .filter(Boolean).join(" · ") || "unchanged" })))), h("div", { class: "stack" }, remarks(found),
    panel(`Differences: ${count(total)}`, [items.length < total && h("p", { class: "muted inset" }, `The first ${count(items.length)} are shown. Name a queue to see its messages.`),
      messageTable(items, "The queues hold the same messages at both points.")], { flush: true })));
  }

  const remarks = (found) => [found.complete === false && noteBox("warn", "A part of the history is not kept any more, so messages may be missing here."),
    [...found.faults ?? [], ...found.remarks ?? []].map((one) => noteBox("warn", text(one)))];

  async function replay() {
    return panel("Replay", h("div", { class: "stack" }, noteBox("info", `The messages that arrived in this range${queue ? ` on ${queue}` : ""} are sent again as new messages. The history itself does not change.`),
      h("div", {}, button("Replay this range", () => askReplay(), { icon: "send", kind: "primary" }))));
  }

  function askReplay() {
    const { close } = dialog("Replay a range", () => [h("p", {}, `${describe(points[0])} to ${describe(points[1])}`), form({
      label: "Replay", cancel: () => close(), fields: [
        { name: "queue", label: "Messages of the queue", value: queue, required: true }, { name: "target", label: "To the address", required: true, help: "Replay into a queue of its own first if consumers are active." },
        { name: "create", label: "Create the queue if it does not exist", type: "checkbox" }],
      submit: async (entered) => {
        const { sent } = await view.api.post("/history/replay", { from: points[0], to: points[1], ...entered });
        close();
        toast(`Sent ${amount(sent, "message")} to ${entered.target}`);
      },
    }).element]);
  }

  queueMicrotask(draw);
  return h("div", { class: "stack" }, h("section", { class: "panel", "aria-label": "Point in time" }, h("div", { class: "panel-body" }, h("div", { class: "stack" },
    h("div", { class: "row" }, segments("View", MODES, mode, (value) => { mode = value; draw(); }), h("div", { class: "field" }, filter)), lead, place, h("div", { class: "row apart" }, chosen, h("div", { class: "inline" }, goTo.element))))), result);
}

function messageTable(items, none) {
  if (!items.length) return empty("Nothing here", none);
  const hasChange = items.some((one) => one.change);
  const head = (label, kind) => h("th", { scope: "col", role: "columnheader", class: kind }, label);
  const cell = (label, value, kind) => h("td", { role: "cell", class: kind, data: { label } }, value);
  return h("div", { class: "table-frame tall", tabindex: 0, role: "region", "aria-label": "Messages at this point" }, h("table", { class: "table", role: "table", "aria-label": "Messages" },
    h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, head("Message"), hasChange && head("Change"), head("Queue"), hasChange && head("Reason"), head("Time", "keep"), head("LSN", "end"), head("Size", "end"))),
    h("tbody", { role: "rowgroup" }, items.map((one) => h("tr", { role: "row" },
      h("td", { role: "cell", class: "main-cell" }, h("a", { href: `#/trace?${new URLSearchParams({ id: one.id })}` }, text(one.message_id ?? `#${one.id}`))),
      hasChange && cell("Change", badge(one.change, one.change === "added" ? "good" : "warn")), cell("Queue", text(one.queue)),
      hasChange && cell("Reason", text(one.reason)), cell("Time", time(one.time), "keep"), cell("LSN", count(one.lsn), "end"), cell("Size", bytes(one.size ?? NaN), "end"))))));
}
