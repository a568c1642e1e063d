// The cluster and the federation: members, leaders, synchronization and lag.

import { h } from "../dom.js";
import { amount, bytes, count, duration, text, time } from "../format.js";
import { badge, facts, noteBox, panel } from "../parts/basics.js";
import { region } from "../parts/region.js";
import { local, table } from "../parts/table.js";
import { to } from "../router.js";
import { page } from "./page.js";

const REFRESH_S = 5;
const GOOD = ["up", "synchronized", "in-sync", "ready", "online", "member", "leader"];

export function clusterPage(view) {
  const members = region(view, { lines: 5, load: (signal) => view.api.get("/cluster", {}, signal), paint: cluster });
  const part = (title, key, columns, none) => panel(title, table(view, {
    label: title, sort: "name", prefix: `${key}_`, rowKey: (one) => one.identity ?? one.name, columns, none: () => h("p", { class: "muted inset" }, none),
    load: local(async (signal) => ({ items: (await view.api.get("/federation", {}, signal))[key] ?? [] })),
  }).element, { flush: true });
  view.every(REFRESH_S);
  return page("Cluster and federation", { lead: "Members of the cluster, and the copies of queues at other sites." }, panel("Cluster", members.element),
    part("Federated queues", "federated_queues", [name, state, plain("source", "Upstream queue"), plain("connector", "Connector"),
      { key: "complete", label: "Complete", render: (one) => badge(one.complete ? "complete" : "incomplete", one.complete ? "good" : "warn") },
      { key: "lag-seconds", label: "Lag", sort: true, kind: "end", render: (one) => duration(one["lag-seconds"] ?? NaN) }], "This broker copies no queues from other sites."),
    part("Downstream sites", "downstreams", [name, plain("queue", "Queue"), number("behind-bytes", "Bytes behind"), number("behind-messages", "Changes behind")], "No other site copies queues of this broker."),
    part("Connectors", "connectors", [name, state, plain("url", "Target"), number("links", "Links"), number("failures", "Failures"), plain("reason", "Last failure")], "This broker connects to no other brokers."),
    part("Routers", "routers", [name, plain("next", "Next hop"), number("cost", "Cost"), number("addresses", "Addresses")], "This broker belongs to no router network."));
}

const name = { key: "name", label: "Name", sort: true, kind: "main-cell", render: (one) => one.name };
const state = { key: "state", label: "State", sort: true, render: (one) => stateBadge(one.state) };
const plain = (key, label) => ({ key, label, sort: true, render: (one) => (one[key] ? text(one[key]) : h("span", { class: "zero" }, "–")) });
const number = (key, label) => ({ key, label, sort: true, kind: "end", render: (one) => count(one[key]) });
const stateBadge = (value) => badge(text(value), GOOD.includes(value) ? "good" : "warn");

const COLUMNS = [["node", "Member"], ["address", "Address"], ["state", "State"], ["leader-of", "Leads"], ["process", "Process"], ["incarnation", "Incarnation"], ["this-one", ""]];

function cluster(data) {
  const { members, enabled } = data;
  if (enabled === false || !members.length) return h("p", { class: "muted" }, "This broker runs alone. Its queues are not replicated.");
  const keys = [...new Set(members.flatMap((one) => Object.keys(one)))];
  const extra = keys.filter((key) => !COLUMNS.some(([known]) => known === key)).map((key) => [key, labelOf(key)]);
  const columns = [...COLUMNS.filter(([key]) => keys.includes(key)), ...extra].filter(([key]) => members.some((one) => one[key] !== "" && one[key] !== null && one[key] !== undefined));
  return h("div", { class: "stack" }, data.missing > 0 && noteBox("warn", `${amount(data.missing, "member")} ${data.missing === 1 ? "is" : "are"} stopped or unreachable.`),
    facts(FACTS.filter(([key]) => key in data).map(([key, label]) => [label, cell(key, data[key])])),
    h("div", { class: "table-frame" }, h("table", { class: "table", role: "table", "aria-label": "Members" },
      h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, columns.map(([, label]) => h("th", { scope: "col", role: "columnheader" }, label || h("span", { class: "visually-hidden" }, "Role"))))),
      h("tbody", { role: "rowgroup" }, members.map((one) => h("tr", { role: "row" },
        columns.map(([key, label], number) => h("td", { class: number ? null : "main-cell", role: "cell", data: { label } }, cell(key, one[key]) || (key !== "this-one" && h("span", { class: "zero" }, "–"))))))))));
}

const FACTS = [["cluster", "Cluster"], ["serving", "This member serves clients"], ["connected", "Connected members"], ["needed", "Majority"],
  ["queues", "Replicated queues"], ["unfinished", "Incomplete queues"], ["waiting-events", "Events without a majority"], ["lag-bytes", "Lag of this member"]];
const labelOf = (key) => { const words = key.replaceAll(/[_-]/g, " "); return words[0].toUpperCase() + words.slice(1); };

function cell(key, value) {
  if (key === "state") return stateBadge(value);
  if (key === "this-one") return value ? badge("this broker", "info") : "";
  if (key === "leader-of") return amount(value, "queue");
  if (key === "process" && !value) return "";  // not connected
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (Array.isArray(value)) return h("span", {}, value.map((one, place) => [place ? ", " : "", h("a", { href: to`/queues/${String(one)}` }, String(one))]));
  if (key === "lag-bytes") return bytes(value);
  if (/(-ms|_ms)$/.test(key)) return duration(value / 1000);
  if (/time$|^since$/.test(key)) return time(value);
  return typeof value === "number" && key !== "process" && key !== "node" ? count(value) : text(value);
}
