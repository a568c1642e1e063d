// The overview: rates, depth, alarms, the latency of the disk, and how long its space lasts.

import { h } from "../dom.js";
import { amount, bytes, count, duration, rate, short, text } from "../format.js";
import { facts, link, noteBox, panel, stats } from "../parts/basics.js";
import { barList, stackBar } from "../parts/bars.js";
import { history } from "../parts/history.js";
import { lineChart } from "../parts/line_chart.js";
import { region } from "../parts/region.js";
import { to } from "../router.js";
import { page } from "./page.js";

export function overviewPage(view) {
  const frame = overview(view);
  const { element } = region(view, { load: (signal) => view.api.get("/overview", {}, signal), frame });
  return page("Overview", { lead: "Rates, alarms and resources of the broker.", actions: [frame.choice] }, element);
}

function overview(view) {
  const figures = stats(["In", "Out", "Messages", "Unsettled", "Sync to disk", "Disk"]);
  const rates = lineChart({ label: "Messages per second", format: rate, filled: true, series: [{ key: "enqueued", label: "In" }, { key: "dequeued", label: "Out" }] });
  const depth = lineChart({ label: "Messages on all queues", format: short, filled: true, series: [{ key: "messages", label: "Messages" }] });
  const sync = lineChart({ label: "Time to make messages durable", format: (ms) => duration(ms / 1000), series: [{ key: "fsync_ms", label: "Sync" }] });
  const alarms = h("div", { class: "stack" });
  const disk = h("div");
  const broker = h("div");
  const deepest = region(view, { lines: 5, load: (signal) => view.api.get("/queues", { sort: "messages", order: "desc", per_page: 6 }, signal), paint: busiest });
  const past = history(view, { charts: [rates, depth, sync], load: async (span) => {
    const found = await view.api.get("/overview", { span }, view.signal);
    return { items: found.samples, interval_s: found.interval_s };
  } });
  const element = h("div", { class: "stack" }, alarms, figures.element,
    h("div", { class: "grid halves even" }, panel("Throughput", rates.element), panel("Depth", depth.element),
      panel("Sync latency", sync.element), panel("Deepest queues", deepest.element, { actions: [link("All queues", "#/queues", { kind: "quiet small" })] }),
      panel("Disk", disk), panel("Broker", broker)));
  past.reload();

  function update(data) {
    const last = data.samples?.at(-1) ?? {};
    past.take(data.samples ?? []);
    const totals = data.totals ?? {};
    const store = data.store ?? {};
    figures.set(0, rate(last.enqueued), `${short(totals.enqueued)} in total`);
    figures.set(1, rate(last.dequeued), `${short(totals.dequeued)} in total`);
    figures.set(2, count(totals.messages), amount(totals.queues, "queue"));
    figures.set(3, count(totals.unsettled), amount(totals.consumers, "consumer"));
    figures.set(4, duration((data.fsync?.p50_ms ?? NaN) / 1000), data.fsync?.p99_ms === undefined ? "" : `99% below ${duration(data.fsync.p99_ms / 1000)}`);
    figures.set(5, bytes(data.disk?.free_bytes), data.disk?.full_in_s ? `full in ${duration(data.disk.full_in_s)}` : "free");
    alarms.replaceChildren(...(data.alarms ?? []).map((one) => noteBox("bad", one.reason ?? one.text ?? text(one))));
    disk.replaceChildren(diskUse(data.disk ?? {}, store));
    broker.replaceChildren(facts([["Version", data.broker?.version], ["Running for", duration(data.broker?.["uptime-seconds"])],
      ["Connections", count(data.broker?.connections)], ["Links", count(data.broker?.links)], ["Exchanges", count(data.broker?.exchanges)],
      ["Memory", data.broker && `${bytes(data.broker["memory-used-bytes"])} of ${bytes(data.broker["memory-limit-bytes"])}`]]));
  }

  view.on("overview", (data) => { update(data); deepest.reload(); });
  view.every(60, past.reload);
  view.onRefresh(past.reload);
  return { element, update, choice: past.choice };
}

function diskUse(disk, store) {
  const used = store["journal-used-bytes"] ?? disk.used_bytes ?? 0;
  const live = Math.min(store["journal-live-bytes"] ?? 0, used);
  return h("div", { class: "stack" }, stackBar("Disk", [
    { label: "Live", value: live, text: bytes(live), series: 1 },
    { label: "Reclaimable", value: used - live, text: bytes(used - live), series: 2 },
  ], used + (disk.free_bytes ?? 0)), h("p", { class: "muted" }, disk.full_in_s
    ? `At the rate of the last minutes, the disk is full in ${duration(disk.full_in_s)}.` : "The space does not shrink at the moment."),
  facts([["Free", bytes(disk.free_bytes)], ["Log starts at", store["journal-base-held-by"]]]));
}

function busiest({ items }) {
  if (!items.length) return h("p", { class: "muted" }, "There are no queues yet.");
  return barList(items.map((one) => ({ value: one.messages, text: count(one.messages), label: h("a", { href: to`/queues/${one.name}` }, one.name) })));
}
