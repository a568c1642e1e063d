// One queue: charts, consumers, limits, and its bindings as a diagram.

import { h } from "../dom.js";
import { path } from "../api.js";
import { ago, amount, bytes, count, rate, setting, short } from "../format.js";
import { badge, button, empty, facts, link, noteBox, panel, stats } from "../parts/basics.js";
import { dialog } from "../parts/dialog.js";
import { form } from "../parts/form.js";
import { bindingGraph } from "../parts/graph.js";
import { history } from "../parts/history.js";
import { lineChart } from "../parts/line_chart.js";
import { region } from "../parts/region.js";
import { local, table } from "../parts/table.js";
import { toast } from "../parts/toast.js";
import { to } from "../router.js";
import { argumentChanges, changeParts } from "./arguments.js";
import { askBind } from "./binding_actions.js";
import { page } from "./page.js";
import { askDelete, askMove, askPublish, askPurge } from "./queue_actions.js";
import { featureBadges, stateBadge } from "./queues.js";

const REFRESH_S = 3;

export function queuePage(view) {
  const { name } = view.params;
  const frame = figures(view);
  const head = region(view, { load: (signal) => view.api.get(path`/queues/${name}`, {}, signal), frame });
  const past = charts(view, name);
  const consumers = table(view, {
    label: "Consumers and producers", compact: false, sort: "role", rowKey: (one) => one.identity ?? one.name,
    load: local(async (signal) => (await view.api.get(path`/queues/${name}`, {}, signal)).links),
    none: () => empty("No consumers and no producers", "No client has a link to this queue."),
    columns: [
      { key: "name", label: "Link", sort: true, kind: "main-cell", render: (one) => one.name },
      { key: "role", label: "Role", sort: true, render: (one) => badge(one.browsing ? "browser" : one.role === "receiver" ? "consumer" : "producer", one.role === "receiver" ? "good" : "info") },
      { key: "unsettled", label: "Unsettled", sort: true, kind: "end", render: (one) => count(one.unsettled) },
      { key: "since", label: "Open for", sort: true, kind: "end", render: (one) => ago(one.since) },
    ],
  });
  view.onRefresh(past.reload);
  const diagram = region(view, { load: (signal) => view.api.get(path`/queues/${name}`, {}, signal), paint: (found) => bindings(name, found["bindings-to"]) });
  view.every(REFRESH_S);
  return page(name, {
    crumbs: [["Queues", "#/queues"]],
    actions: [link("Browse messages", to`/queues/${name}/messages`, { icon: "search", kind: "primary" }),
      button("Publish", () => askPublish(view, path`/queues/${name}/publish`, `Publish to ${name}`, {}, () => view.refresh()), { icon: "send" }),
      link("History", `#/time?queue=${encodeURIComponent(name)}`, { icon: "time" })],
  }, head.element, past.element,
  h("div", { class: "grid halves even" },
    panel("Consumers and producers", consumers.element, { flush: true }),
    panel("Bindings", diagram.element, { actions: [button("Bind", () => askBind(view, { queue: name }, diagram.reload), { icon: "plus", kind: "small quiet" })] })), frame.limits);
}

function figures(view) {
  const cells = stats(["State", "Messages", "Ready", "Unsettled", "Consumers", "In", "Out", "Dead letters"]);
  const about = h("div", { class: "row" });
  const settings = h("div");
  let queue = null;
  const reload = () => view.refresh();
  const element = cells.element;
  const limits = panel("Limits and policies", h("div", { class: "stack" }, about, settings), { actions: [
      button("Change", () => change(view, queue, reload), { kind: "small quiet" }),
      button("Move messages", () => askMove(view, queue, reload), { kind: "small quiet" }),
      button("Purge", () => askPurge(view, queue, reload), { kind: "small quiet danger" }),
      button("Delete", () => askDelete(view, queue, () => view.go("#/queues")), { kind: "small quiet danger" })] });
  return { element, limits, update: paint };

  function paint(given) {
    queue = given;
    const limit = (key, format) => (given.arguments[key] ? `of at most ${format(given.arguments[key])}` : "");
    cells.set(0, stateBadge(given), `${bytes(given["held-bytes"])} of memory`);
    cells.set(1, count(given.messages), limit("max-messages", count) || limit("max-bytes", bytes));
    cells.set(2, count(given.ready), given.backlog ? `${short(given.backlog)} only on disk` : "for consumers");
    cells.set(3, count(given.unsettled), "held by consumers");
    cells.set(4, count(given.consumers), given.browsers ? amount(given.browsers, "browser") : amount(given.producers, "producer"));
    cells.set(5, rate(given["enqueue-rate"] ?? NaN), `${short(given.enqueued)} in total`);
    cells.set(6, rate(given["dequeue-rate"] ?? NaN), `${short(given.dequeued)} in total`);
    cells.set(7, count(given["dead-lettered"]), given.expired ? `${count(given.expired)} expired` : "since the start");
    about.replaceChildren(badge(given.durable ? "durable" : "transient", given.durable ? "good" : ""), ...featureBadges(given),
      ...(given["silent-consumer"] ? [noteBox("warn", `Consumer ${given["silent-consumer"]}`)] : []));
    const pairs = Object.entries(given.arguments);
    settings.replaceChildren(pairs.length ? facts(pairs.map(([key, value]) => [h("code", {}, key), setting(key, value)])) : h("p", { class: "muted" }, "This queue has no limits and no policies."));
  }
}

function charts(view, name) {
  const flow = lineChart({ label: "Messages per second", format: rate, filled: true, series: [{ key: "enqueued", label: "In" }, { key: "dequeued", label: "Out" }] });
  const depth = lineChart({ label: "Messages on the queue", format: short, filled: true, series: [{ key: "messages", label: "Messages" }, { key: "unsettled", label: "Unsettled" }] });
  const past = history(view, { charts: [flow, depth], load: (span, after) => view.api.get(path`/queues/${name}/rates`, { span, after }, view.signal) });
  past.reload();
  return { reload: past.reload, element: h("div", { class: "stack" }, past.choice, h("div", { class: "grid halves" }, panel("Throughput", flow.element), panel("Depth", depth.element))) };
}

function bindings(name, items) {
  if (!items.length) return empty("No bindings", "Clients reach this queue by its own name.");
  const exchanges = [...new Set(items.map((one) => one.exchange))];
  return bindingGraph({
    label: `Bindings of ${name}`, center: `queue ${name}`,
    left: exchanges.map((one) => ({ id: one, label: one, href: to`/exchanges/${one}` })),
    right: [{ id: `queue ${name}`, label: name, href: to`/queues/${name}` }],
    edges: items.map((one) => ({ from: one.exchange, to: `queue ${name}`, key: one.key })),
  });
}

function change(view, queue, done) {
  const { close } = dialog(`Change ${queue.name}`, () => [noteBox("info", "Changes apply at once. An empty field removes the limit."), form({
    label: "Save", cancel: () => close(), fields: changeParts(queue.arguments),
    submit: async (entered) => {
      await view.api.patch(path`/queues/${queue.name}`, { arguments: argumentChanges(queue.arguments, entered) });
      close();
      toast("Saved");
      done();
    },
  }).element]);
}
