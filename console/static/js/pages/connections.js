// Connections and their links: who is connected, what they hold, and closing them.

import { h } from "../dom.js";
import { path } from "../api.js";
import { ago, amount, count, duration, text } from "../format.js";
import { badge, button, empty } from "../parts/basics.js";
import { confirm } from "../parts/dialog.js";
import { menu } from "../parts/menu.js";
import { table } from "../parts/table.js";
import { toast } from "../parts/toast.js";
import { to } from "../router.js";
import { page } from "./page.js";

const REFRESH_S = 3;

export function connectionsPage(view) {
  const connections = table(view, {
    label: "Connections", search: "Filter connections", csv: "/connections", bulk: (some) => closing("connections", some), sort: "since", order: "desc", rowKey: (one) => one.identity,
    load: (query, signal) => view.api.get("/connections", query, signal),
    none: () => empty("No connections", "No client is connected."),
    columns: [
      { key: "name", label: "Connection", sort: true, kind: "main-cell", render: (one) => one.name },
      { key: "container", label: "Container", sort: true, render: (one) => text(one.container) },
      { key: "user", label: "User", sort: true, render: (one) => (one.user ? h("a", { href: to`/users/${one.user}` }, one.user) : h("span", { class: "muted" }, "anonymous")) },
      { key: "sessions", label: "Sessions", sort: true, kind: "end", render: (one) => count(one.sessions) },
      { key: "links", label: "Links", sort: true, kind: "end", render: (one) => count(one.links) },
      { key: "idle-seconds", label: "Idle for", sort: true, kind: "end", render: (one) => duration(one["idle-seconds"] ?? NaN) },
      { key: "since", label: "Open for", sort: true, kind: "end", render: (one) => ago(one.since) },
      { key: "actions", name: "Actions", kind: "fit", render: (one) => menu(`Actions for ${one.name}`, [["Close", () => askClose(view, "connections", [one]), "danger"]], `actions ${one.identity}`) },
    ],
  });
  const links = table(view, {
    label: "Links", search: "Filter links", csv: "/links", bulk: (some) => closing("links", some), sort: "address", rowKey: (one) => one.identity, prefix: "l_",
    load: (query, signal) => view.api.get("/links", query, signal),
    none: () => empty("No links", "No client sends or receives."),
    columns: [
      { key: "name", label: "Link", sort: true, kind: "main-cell", render: (one) => one.name },
      { key: "address", label: "Address", sort: true, render: (one) => (one.address ? one.address : h("span", { class: "muted" }, "named by each message")) },
      { key: "role", label: "Role", sort: true, render: (one) => h("div", { class: "badges" }, badge(one.role, one.role === "receiver" ? "good" : "info"), one.browsing && badge("browses"), one.presettled && badge("presettled")) },
      { key: "credit", label: "Credit", sort: true, kind: "end", render: (one) => count(one.credit ?? NaN) },
      { key: "unsettled", label: "Unsettled", sort: true, kind: "end", render: (one) => count(one.unsettled) },
      { key: "since", label: "Open for", sort: true, kind: "end", render: (one) => ago(one.since) },
      { key: "actions", name: "Actions", kind: "fit", render: (one) => menu(`Actions for ${one.name}`, [["Close", () => askClose(view, "links", [one]), "danger"]], `actions ${one.identity}`) },
    ],
  });
  const lists = { connections, links };
  const closing = (kind, some) => [button("Close", () => askClose(view, kind, some, () => { lists[kind].clearSelection(); view.refresh(); }), { kind: "danger" })];
  view.every(REFRESH_S);
  return page("Connections and links", { lead: "Clients and other brokers, with the links on which they send and receive." },
    h("section", { class: "panel", "aria-label": "Connections" }, connections.element),
    h("h2", {}, "Links"), h("section", { class: "panel", "aria-label": "Links" }, links.element));
}

const NOUNS = { connections: "connection", links: "link" };
const CONSEQUENCES = {
  connections: "The client may connect again. Its unsettled messages return to their queues.",
  links: "The client may attach it again. Its unsettled messages return to their queues.",
};

/** Asks before connections or links are closed, one after another. */
function askClose(view, kind, some, done = () => view.refresh()) {
  const what = some.length === 1 ? `the ${NOUNS[kind]}` : amount(some.length, NOUNS[kind]);
  confirm({
    title: `Close ${what}`, label: some.length === 1 ? "Close it" : "Close them", text: [some.slice(0, 10).map((one) => [h("code", {}, one.name), " "]), CONSEQUENCES[kind]],
    action: async () => {
      for (const one of some) await view.api.delete(path`/${kind}/${one.identity}`).catch((error) => { if (some.length === 1 || error.status !== 404) throw error; });
      toast(`Closed ${what}`);
      done();
    },
  });
}
