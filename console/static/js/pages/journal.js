// The journal as a map of its containers, and why the log is as long as it is.

import { h, put } from "../dom.js";
import { bytes, count, duration, percent, text, time } from "../format.js";
import { button, empty, facts, noteBox, panel, stats } from "../parts/basics.js";
import { stackBar } from "../parts/bars.js";
import { containerLegend, containerMap, stateOf } from "../parts/container_map.js";
import { command } from "../parts/copy.js";
import { question } from "../parts/question.js";
import { page } from "./page.js";

export function journalPage(view) {
  const { element, ask } = question(view);
  const look = () => ask((signal) => view.api.get("/journal", {}, signal), journal);
  look();
  return page("Journal map", { lead: "The parts of the log that are still needed, and what prevents others from being reclaimed.",
    actions: [button("Read again", look, { icon: "refresh" })] }, element);
}

function journal(data) {
  const containers = data.containers ?? [];
  const detail = h("div", {}, h("p", { class: "muted" }, "Choose a container to see what it holds."));
  const cells = stats(["Log", "Live", "Reclaimable", "Containers"]);
  const reclaimable = data.reclaimable_bytes ?? (data.used_bytes - data.live_bytes);
  cells.set(0, bytes(data.used_bytes), `LSN ${count(data.base_lsn)} to ${count(data.end_lsn)}`);
  cells.set(1, bytes(data.live_bytes), `${percent(data.live_bytes / data.used_bytes)} of the log`);
  cells.set(2, bytes(reclaimable), `as of ${time(Date.now())}`);
  cells.set(3, count(containers.length), data.free_containers === undefined ? "" : `${count(data.free_containers)} prepared`);
  const reasons = data.explanation ?? [];
  return h("div", { class: "stack" }, cells.element,
    panel("Why is the log this long?", h("div", { class: "stack" },
      stackBar("Log", [{ label: "Live", value: data.live_bytes, text: bytes(data.live_bytes) }, { label: "Not needed any more", value: reclaimable, text: bytes(reclaimable) }]),
      data.held_by && noteBox(data.held_by.command ? "warn" : "info", data.held_by.text ?? text(data.held_by)),
      data.held_by?.command && command(data.held_by.command),
      reasons.map((one, number) => [one.text !== reasons[number - 1]?.text && h("p", {}, sentence(one.text ?? text(one))), one.command && command(one.command, one.destroys)]),
      !data.held_by && !reasons.length && h("p", { class: "muted" }, "Nothing keeps the log longer than its messages need."))),
    h("div", { class: "grid wide-first" }, panel("Containers", containers.length ? h("div", { class: "stack" }, containerLegend(), containerMap(containers, (one) => put(detail, about(one))))
      : empty("No containers", "This store has no journal.")), panel("Chosen container", detail)));
}

const sentence = (words) => words.charAt(0).toUpperCase() + words.slice(1) + (/[.:]$/.test(words) ? "" : ".");

function about(one) {
  return facts([["Container", one.slot], ["State", stateOf(one)], ["File", one.file && h("code", {}, one.file)], ["First LSN", count(one.first_lsn)], ["Begun", one.begun && time(one.begun)],
    ["Live", `${bytes(one.live_bytes)} (${percent(one.live_ratio)})`], ["Records", one.records === undefined ? null : count(one.records)], ["Held by", one.held_by && text(one.held_by.text ?? one.held_by)],
    ["Age", one.age_s && duration(one.age_s)]]);
}
