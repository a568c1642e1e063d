// The cluster and the federation: members, leaders, synchronization and lag.

import { h } from "../dom.js";
import { count, duration, text, time } from "../format.js";
import { badge, empty, noteBox, panel } from "../parts/basics.js";
import { region } from "../parts/region.js";
import { local, table } from "../parts/table.js";
import { to } from "../router.js";
import { page } from "./page.js";

const REFRESH_S = 5;
const GOOD = ["up", "synchronized", "in-sync", "ready", "online", "member", "leader"];

export function clusterPage(view) {
  const members = region(view, { lines: 5, load: (signal) => view.api.get("/cluster", {}, signal), paint: cluster });
  const part = (title, key, columns, none) => panel(title, table(view, {
    label: title, sort: "name", prefix: `${key}_`, rowKey: (one) => one.identity ?? one.name, columns, none: () => empty(none),
    load: local(async (signal) => ({ items: (await view.api.get("/federation", {}, signal))[key] ?? [] })),
  }).element, { flush: true });
  view.every(REFRESH_S);
  return page("Cluster and federation", { lead: "Members of the cluster, and the copies of queues at other sites." }, panel("Cluster", members.element),
    part("Federated queues", "followings", [name, state, plain("source", "Upstream queue"), plain("connector", "Connector"),
      { key: "whole", label: "Complete", render: (one) => badge(one.whole ? "complete" : "incomplete", one.whole ? "good" : "warn") },
      { key: "lag-seconds", label: "Lag", sort: true, kind: "end", render: (one) => duration(one["lag-seconds"] ?? NaN) }], "This broker copies no queues from other sites."),
    part("Downstream sites", "followers", [name, plain("queue", "Queue"), number("behind-bytes", "Bytes behind"), number("behind-messages", "Changes behind")], "No other site copies queues of this broker."),
    part("Connectors", "connectors", [name, state, plain("url", "Target"), number("links", "Links"), number("failures", "Failures"), plain("why", "Last failure")], "This broker connects to no other brokers."),
    part("Routers", "routers", [name, plain("next", "Next hop"), number("cost", "Cost"), number("addresses", "Addresses")], "This broker belongs to no router network."));
}

const name = { key: "name", label: "Name", sort: true, kind: "main-cell", render: (one) => one.name };
const state = { key: "state", label: "State", sort: true, render: (one) => stateBadge(one.state) };
const plain = (key, label) => ({ key, label, sort: true, render: (one) => (one[key] ? text(one[key]) : h("span", { class: "zero" }, "–")) });
const number = (key, label) => ({ key, label, sort: true, kind: "end", render: (one) => count(one[key]) });
const stateBadge = (value) => badge(text(value), GOOD.includes(value) ? "good" : "warn");

function cluster(data) {
  const members = data.members ?? [];
  if (data.enabled === false || !members.length) return empty("No cluster", "This broker runs alone. Its queues are not replicated.");
  const columns = [...new Set(members.flatMap((one) => Object.keys(one)))].filter((key) => key !== "name" && key !== "member");
  const silent = data.missing ?? data.silent?.length ?? 0;
  return h("div", { class: "stack" }, silent > 0 && noteBox("warn", `${count(silent)} members do not respond.`),
    h("div", { class: "table-frame" }, h("table", { class: "table", role: "table", "aria-label": "Members" },
      h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, h("th", { scope: "col", role: "columnheader" }, "Member"), columns.map((key) => h("th", { scope: "col", role: "columnheader" }, labelOf(key))))),
      h("tbody", { role: "rowgroup" }, members.map((one) => h("tr", { role: "row" }, h("td", { class: "main-cell", role: "cell" }, text(one.name ?? one.member)),
        columns.map((key) => h("td", { role: "cell", data: { label: labelOf(key) } }, cell(key, one[key])))))))));
}

const labelOf = (key) => { const words = key.replaceAll(/[_-]/g, " "); return words[0].toUpperCase() + words.slice(1); };

function cell(key, value) {
  if (key === "state") return stateBadge(value);
  if (Array.isArray(value)) return h("span", {}, value.map((one, place) => [place ? ", " : "", h("a", { href: to`/queues/${String(one)}` }, String(one))]));
  if (/(-ms|_ms)$/.test(key)) return duration(value / 1000);
  if (/time$|^since$/.test(key)) return time(value);
  return typeof value === "number" ? count(value) : text(value);
}
