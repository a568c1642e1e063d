// All queues, a page at a time.

import { h } from "../dom.js";
import { count, rate } from "../format.js";
import { badge, button, empty } from "../parts/basics.js";
import { dialog } from "../parts/dialog.js";
import { form } from "../parts/form.js";
import { menu } from "../parts/menu.js";
import { table } from "../parts/table.js";
import { toast } from "../parts/toast.js";
import { to } from "../router.js";
import { argumentsOf, creationParts } from "./arguments.js";
import { page } from "./page.js";
import { askBulk, askDelete, askPurge } from "./queue_actions.js";

const REFRESH_S = 3;

export function queuesPage(view) {
  const create = () => createQueue(view);
  const list = table(view, {
    label: "Queues", search: "Filter by name", sort: "name", rowKey: (one) => one.name,
    load: (query, signal) => view.api.get("/queues", query, signal),
    csv: "/queues",
    bulk: (some) => [button("Purge", () => bulk("purge", some), {}), button("Delete", () => bulk("delete", some), { kind: "danger" })],
    tools: [button("Create queue", create, { icon: "plus", kind: "primary" })],
    none: () => empty("No queues yet", "A queue is created when a client first uses its name, or here.", button("Create queue", create, { icon: "plus", kind: "primary" })),
    columns: [
      { key: "name", label: "Name", sort: true, kind: "main-cell", render: (one) => h("a", { href: to`/queues/${one.name}`, data: { focus: `queue ${one.name}` } }, one.name) },
      { key: "state", label: "State", sort: true, render: (one) => h("div", { class: "badges" }, stateBadge(one), featureBadges(one)) },
      number("messages", "Messages"), number("unsettled", "Unsettled"), number("consumers", "Consumers"),
      rateOf("enqueue-rate", "In/s", "enqueued"), rateOf("dequeue-rate", "Out/s", "dequeued"),
      { key: "actions", name: "Actions", kind: "fit", render: (one) => menu(`Actions for ${one.name}`, [
        ["Purge", () => askPurge(view, one, () => list.reload())], ["Delete", () => askDelete(view, one, () => list.reload()), "danger"]], `actions ${one.name}`) },
    ],
  });
  const bulk = (action, some) => askBulk(view, action, some, () => { list.clearSelection(); list.reload(); });
  view.every(REFRESH_S);
  return page("Queues", { lead: "Queues, and the messages that wait on them for consumers." }, h("section", { class: "panel", "aria-label": "Queues" }, list.element));
}

const number = (key, label, format = count) => ({ key, label, sort: true, kind: "end", render: (one) => h("span", { class: one[key] ? "" : "zero", title: count(one[key]) }, format(one[key])) });

const rateOf = (key, label, total) => ({ key, label, sort: true, kind: "end", render: (one) =>
  h("span", { class: one[key] ? "" : "zero", title: `${count(one[total])} in total` }, Number.isFinite(one[key]) ? rate(one[key]).replace("/s", "") : "–") });
const STATES = { normal: "good", paused: "info", growing: "warn", full: "bad", "no consumers": "warn" };

/** What an operator should look at. */
export const stateBadge = (queue) => badge(queue.state ?? "–", STATES[queue.state] ?? "");

/** What is special about a queue, as badges. */
export function featureBadges(queue) {
  const given = queue.arguments ?? {};
  const found = [
    !queue.durable && badge("transient"), given["dead-letter-address"] && badge("dead letters to " + given["dead-letter-address"]),
    (given["max-messages"] || given["max-bytes"]) && badge("limited"), given.priorities && badge("priorities"), given["last-value-key"] && badge("last value"),
    given["message-groups"] && badge("groups"), given["single-active-consumer"] && badge("single consumer"), given.exclusive && badge("exclusive"), given["message-ttl-ms"] && badge("expires"),
  ].filter(Boolean);
  return found;
}

function createQueue(view) {
  const { close } = dialog("Create a queue", () => form({
    label: "Create queue", cancel: () => close(),
    fields: [
      { name: "name", label: "Name", required: true },
      { name: "durable", label: "Durable", type: "checkbox", value: true, help: "The queue and its durable messages survive a restart of the broker." },
      ...creationParts(),
    ],
    submit: async (entered) => {
      await view.api.post("/queues", { name: entered.name, durable: entered.durable, arguments: argumentsOf(entered) });
      close();
      toast(`Created the queue ${entered.name}`);
      view.go(to`/queues/${entered.name}`);
    },
  }).element);
}
