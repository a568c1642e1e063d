// The cluster and the federation: members, leaders, synchronization and lag.

import { h } from "../dom.js";
import { amount, bytes, count, duration, text, time } from "../format.js";
import { badge, empty, facts, noteBox, panel } from "../parts/basics.js";
import { region } from "../parts/region.js";
import { local, table } from "../parts/table.js";
import { to } from "../router.js";
import { page } from "./page.js";

const REFRESH_S = 5;
const GOOD = ["up", "synchronized", "in-sync", "ready", "online", "member", "leader"];

const PARTS = [
  ["Federated queues", "federated_queues", "federated queues"], ["Downstream sites", "downstreams", "downstream sites"],
  ["Connectors", "connectors", "connectors"], ["Routers", "routers", "routers"],
];

export function clusterPage(view) {
  const columns = {
    federated_queues: [name, state, plain("source", "Upstream queue"), plain("connector", "Connector"),
      { key: "complete", label: "Complete", render: (one) => badge(one.complete ? "complete" : "incomplete", one.complete ? "good" : "warn") },
      { key: "lag-seconds", label: "Lag", sort: true, kind: "end", render: (one) => duration(one["lag-seconds"] ?? NaN) }],
    downstreams: [name, plain("queue", "Queue"), number("behind-bytes", "Bytes behind"), number("behind-messages", "Changes behind")],
    connectors: [name, state, plain("url", "Target"), number("links", "Links"), number("failures", "Failures"), plain("reason", "Last failure")],
    routers: [name, plain("next", "Next hop"), number("cost", "Cost"), number("addresses", "Addresses")],
  };
  let federation = {};
  const tables = new Map();
  const part = ([title, key]) => {
    if (!tables.has(key)) tables.set(key, table(view, { label: title, sort: "name", prefix: `${key}_`, rowKey: (one) => one.identity ?? one.name, columns: columns[key],
      load: local(async () => ({ items: federation[key] ?? [] })) }));
    else tables.get(key).reload();
    return panel(title, tables.get(key).element, { flush: true });
  };
  const { element } = region(view, { lines: 8, load: async (signal) => Promise.all([view.api.get("/cluster", {}, signal), view.api.get("/federation", {}, signal)]),
    paint: ([members, found]) => {
      federation = found;
      const isAlone = members.enabled === false || !members.members.length;
      const used = PARTS.filter(([, key]) => found[key]?.length);
      const unused = PARTS.filter(([, key]) => !found[key]?.length).map(([, , noun]) => noun);
      if (isAlone && !used.length) {
        return h("section", { class: "panel", "aria-label": "Cluster" }, empty("This broker runs alone", "Its queues are not replicated, and it has no links to other brokers. Start it with --cluster-name for a cluster, or with --connect-to to federate queues."));
      }
      return h("div", { class: "stack" }, !isAlone && panel("Cluster", cluster(members)), used.map(part),
        h("p", { class: "muted" }, [isAlone && "This broker is in no cluster: its queues are not replicated.", unused.length > 0 && `It has no ${unused.join(", no ")}.`].filter(Boolean).join(" ")));
    } });
  view.every(REFRESH_S);
  return page("Cluster and federation", { lead: "Members of the cluster, and the copies of queues at other sites." }, element);
}

const name = { key: "name", label: "Name", sort: true, kind: "main-cell", render: (one) => one.name };
const state = { key: "state", label: "State", sort: true, render: (one) => stateBadge(one.state) };
const plain = (key, label) => ({ key, label, sort: true, render: (one) => (one[key] ? text(one[key]) : h("span", { class: "zero" }, "–")) });
const number = (key, label) => ({ key, label, sort: true, kind: "end", render: (one) => count(one[key]) });
const stateBadge = (value) => badge(text(value), GOOD.includes(value) ? "good" : "warn");

const COLUMNS = [["node", "Member"], ["address", "Address"], ["state", "State"], ["leader-of", "Leads"], ["process", "Process"], ["incarnation", "Incarnation"], ["this-one", ""]];

function cluster(data) {
  const { members } = data;
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
