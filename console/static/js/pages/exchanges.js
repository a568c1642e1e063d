// Exchanges and bindings: a diagram, a test message, and the queues that a message would reach.

import { h, put } from "../dom.js";
import { path } from "../api.js";
import { count, text } from "../format.js";
import { badge, button, empty, facts, noteBox, panel } from "../parts/basics.js";
import { confirm, dialog } from "../parts/dialog.js";
import { form } from "../parts/form.js";
import { bindingGraph } from "../parts/graph.js";
import { menu } from "../parts/menu.js";
import { region } from "../parts/region.js";
import { table } from "../parts/table.js";
import { toast } from "../parts/toast.js";
import { to } from "../router.js";
import { askBind, askUnbind } from "./binding_actions.js";
import { page } from "./page.js";
import { askPublish } from "./queue_actions.js";

const DRAWN_BINDINGS = 60;
const REFRESH_S = 5;
const TYPES = [["direct", "direct: the same key"], ["topic", "topic: a pattern of the key"], ["fanout", "fanout: all bound queues"], ["headers", "headers: application properties"]];

export function exchangesPage(view) {
  const create = () => createExchange(view);
  const list = table(view, {
    label: "Exchanges", search: "Filter by name", csv: "/exchanges", sort: "name", rowKey: (one) => one.name,
    load: (query, signal) => view.api.get("/exchanges", query, signal),
    tools: [button("Create exchange", create, { icon: "plus", kind: "primary" })],
    columns: [
      { key: "name", label: "Name", sort: true, kind: "main-cell", render: (one) => h("a", { href: to`/exchanges/${one.name}`, data: { focus: `exchange ${one.name}` } }, one.name) },
      { key: "exchange-type", label: "Type", sort: true, render: (one) => badge(one["exchange-type"]) },
      { key: "bindings", label: "Bindings", sort: true, kind: "end", render: (one) => count(one.bindings) },
      { key: "routed", label: "Routed", sort: true, kind: "end", render: (one) => count(one.routed) },
      { key: "unroutable", label: "Unroutable", sort: true, kind: "end", render: (one) => count(one.unroutable) },
    ],
  });
  view.every(REFRESH_S, list.reload);
  const diagram = region(view, { lines: 8, load: (signal) => view.api.get("/bindings", { per_page: DRAWN_BINDINGS }, signal), paint: (data) => graphOf(data) });
  return page("Exchanges and bindings", { lead: "Exchanges, and the bindings that route messages to queues." },
    h("section", { class: "panel", "aria-label": "Exchanges" }, list.element),
    panel("Bindings", diagram.element, { actions: [button("Bind", () => askBind(view, {}, () => view.refresh()), { icon: "plus", kind: "small quiet" })] }));
}

/** The diagram of these bindings; *hits* are the queues and exchanges to emphasize. */
function graphOf({ items, total }, hits = null) {
  if (!items.length) return empty("No bindings yet", "Bind a queue to an exchange, and messages to the exchange reach it.");
  const exchanges = [...new Set(items.map((one) => one.exchange))];
  const queues = [...new Set(items.map((one) => one.queue))];
  return h("div", { class: "stack" }, total > items.length && noteBox("info", `The diagram shows ${items.length} of ${count(total)} bindings.`), bindingGraph({
    label: "Exchanges and their queues", hits,
    left: exchanges.map((one) => ({ id: `x ${one}`, label: one, href: to`/exchanges/${one}` })),
    right: queues.map((one) => ({ id: `q ${one}`, label: one, href: to`/queues/${one}` })),
    edges: items.map((one) => ({ from: `x ${one.exchange}`, to: `q ${one.queue}`, key: one.key })),
  }));
}

export function exchangePage(view) {
  const { name } = view.params;
  let bindings = { items: [], total: 0 };
  let hits = null;
  const about = region(view, { lines: 3, load: (signal) => view.api.get(path`/exchanges/${name}`, {}, signal), paint: (one) => facts([
    ["Type", badge(one["exchange-type"])], ["Durable", one.durable ? "yes" : "no"], ["Alternate exchange", one["alternate-exchange"]],
    ["Routed", count(one.routed)], ["Unroutable", count(one.unroutable)], ["Producers", count(one.producers)],
    ["Arguments", Object.keys(one.arguments ?? {}).length ? text(one.arguments) : null]]) });
  view.every(REFRESH_S, about.reload);
  const picture = h("div");
  const diagram = region(view, { load: (signal) => view.api.get("/bindings", { exchange: name, per_page: DRAWN_BINDINGS }, signal), paint: (data) => {
    bindings = data;
    return put(picture, graphOf(data, hits));
  } });
  const answer = h("div", { role: "status" }, h("p", { class: "muted" }, "Enter a key to see which queues a message with it would reach. Nothing is sent."));
  const reach = form({ label: "Show", kind: "", fields: [
    { name: "key", label: "Routing key", keepEmpty: true },
  ], submit: async ({ key = "" }) => {
    const { items: queues } = await view.api.get(path`/exchanges/${name}/reach`, { key });
    put(answer, queues.length ? [h("p", {}, `A message with this key reaches ${queues.length === 1 ? "one queue" : `${count(queues.length)} queues`}:`),
      h("div", { class: "badges" }, queues.map((one) => h("a", { class: "badge good", href: to`/queues/${one}` }, one)))]
      : noteBox("warn", "A message with this key reaches no queue."));
    hits = new Set([`x ${name}`, ...queues.map((one) => `q ${one}`)]);
    put(picture, graphOf(bindings, hits));
  } });
  const list = table(view, {
    label: "Bindings", sort: "queue", search: "Filter bindings", rowKey: (one) => one.name, prefix: "b_",
    load: (query, signal) => view.api.get("/bindings", { exchange: name, ...query }, signal),
    tools: [button("Bind", () => askBind(view, { exchange: name }, () => view.refresh()), { icon: "plus", kind: "primary" })],
    none: () => empty("No bindings", "Messages to this exchange reach no queue."),
    columns: [
      { key: "queue", label: "Queue", sort: true, kind: "main-cell", render: (one) => h("a", { href: to`/queues/${one.queue}` }, one.queue) },
      { key: "key", label: "Key", sort: true, render: (one) => (one.key ? h("code", {}, one.key) : h("span", { class: "zero" }, "–")) },
      { key: "arguments", label: "Conditions", render: (one) => (Object.keys(one.arguments ?? {}).length ? h("code", {}, text(one.arguments)) : h("span", { class: "zero" }, "–")) },
      { key: "actions", name: "Actions", kind: "fit", render: (one) => menu(`Actions for the binding of ${one.queue}`, [["Remove", () => askUnbind(view, one, () => view.refresh()), "danger"]], `actions ${one.name}`) },
    ],
  });
  return page(name, {
    crumbs: [["Exchanges", "#/exchanges"]],
    actions: [button("Publish a test message", () => askPublish(view, path`/exchanges/${name}/publish`, `Publish to ${name}`, { hasKey: true, key: reach.input("key").value }, () => view.refresh()), { icon: "send", kind: "primary" }),
      button("Delete", () => deleteExchange(view, name), { kind: "danger" })],
  }, h("div", { class: "grid even" }, panel("About", about.element), panel("Which queues would this reach?", h("div", { class: "stack" }, reach.element, answer))),
  panel("Diagram", diagram.element), h("section", { class: "panel", "aria-label": "Bindings" }, list.element));
}

function createExchange(view) {
  const { close } = dialog("Create an exchange", () => form({
    label: "Create exchange", cancel: () => close(),
    fields: [
      { name: "name", label: "Name", required: true },
      { name: "type", label: "Type", type: "select", options: TYPES, value: "direct", help: "Which bindings a message matches." },
      { name: "alternate", label: "Alternate exchange", help: "Receives the messages that match no binding." },
      { name: "durable", label: "Durable", type: "checkbox", value: true, help: "The exchange survives a restart of the broker." },
    ],
    submit: async ({ name, type, alternate, durable }) => {
      await view.api.post("/exchanges", { name, "exchange-type": type, durable, arguments: alternate ? { "alternate-exchange": alternate } : {} });
      close();
      toast(`Created the exchange ${name}`);
      view.go(to`/exchanges/${name}`);
    },
  }).element);
}

function deleteExchange(view, name) {
  confirm({ title: "Delete the exchange", label: "Delete", typed: name, text: ["This deletes ", h("code", {}, name), " with its bindings. The queues stay."], action: async () => {
    await view.api.delete(path`/exchanges/${name}`);
    toast(`Deleted the exchange ${name}`);
    view.go("#/exchanges");
  } });
}
