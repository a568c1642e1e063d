// Connections and their links: who is connected, what they hold, and closing them.

import { h } from "../dom.js";
import { path } from "../api.js";
import { ago, count, duration, text } from "../format.js";
import { badge, button, empty } from "../parts/basics.js";
import { confirm } from "../parts/dialog.js";
import { table } from "../parts/table.js";
import { toast } from "../parts/toast.js";
import { to } from "../router.js";
import { page } from "./page.js";

const REFRESH_S = 3;

export function connectionsPage(view) {
  const connections = table(view, {
    label: "Connections", search: "Filter connections", sort: "since", order: "desc", rowKey: (one) => one.identity,
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
      { key: "actions", name: "Actions", kind: "fit", render: (one) => close(view, "connections", one, "The client may connect again. Its unsettled messages return to their queues.") },
    ],
  });
  const links = table(view, {
    label: "Links", search: "Filter links", sort: "address", rowKey: (one) => one.identity, prefix: "l_",
    load: (query, signal) => view.api.get("/links", query, signal),
    none: () => empty("No links", "No client sends or receives."),
    columns: [
      { key: "name", label: "Link", sort: true, kind: "main-cell", render: (one) => one.name },
      { key: "address", label: "Address", sort: true, render: (one) => (one.address ? one.address : h("span", { class: "muted" }, "named by each message")) },
      { key: "role", label: "Role", sort: true, render: (one) => h("div", { class: "badges" }, badge(one.role, one.role === "receiver" ? "good" : "info"), one.browsing && badge("browses"), one.presettled && badge("presettled")) },
      { key: "credit", label: "Credit", sort: true, kind: "end", render: (one) => count(one.credit ?? NaN) },
      { key: "unsettled", label: "Unsettled", sort: true, kind: "end", render: (one) => count(one.unsettled) },
      { key: "since", label: "Open for", sort: true, kind: "end", render: (one) => ago(one.since) },
      { key: "actions", name: "Actions", kind: "fit", render: (one) => close(view, "links", one, "The client may attach it again. Its unsettled messages return to their queues.") },
    ],
  });
  view.every(REFRESH_S);
  return page("Connections and links", { lead: "Clients and other brokers, with the links on which they send and receive." },
    h("section", { class: "panel", "aria-label": "Connections" }, connections.element),
    h("h2", {}, "Links"), h("section", { class: "panel", "aria-label": "Links" }, links.element));
}

function close(view, kind, one, consequence) {
  const noun = kind === "links" ? "link" : "connection";
  return button("Close", () => confirm({
    title: `Close the ${noun}`, label: "Close it", text: [h("code", {}, one.name), ". ", consequence],
    action: async () => {
      await view.api.delete(path`/${kind}/${one.identity}`);
      toast(`Closed the ${noun}`);
      view.refresh();
    },
  }), { kind: "small quiet danger", "aria-label": `Close the ${noun} ${one.name}`, data: { focus: `close ${one.identity}` } });
}
