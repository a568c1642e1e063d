// Transactions: open ones, and distributed ones that wait for a decision.

import { h } from "../dom.js";
import { path } from "../api.js";
import { count, duration } from "../format.js";
import { badge, button, empty } from "../parts/basics.js";
import { confirm } from "../parts/dialog.js";
import { table } from "../parts/table.js";
import { toast } from "../parts/toast.js";
import { page } from "./page.js";

const REFRESH_S = 3;

export function transactionsPage(view) {
  const list = table(view, {
    label: "Transactions", search: "Filter transactions", sort: "state", rowKey: (one) => one.identity ?? one.name,
    load: (query, signal) => view.api.get("/transactions", query, signal),
    none: () => empty("No transactions", "No transaction is open, and none is in doubt."),
    columns: [
      { key: "name", label: "Transaction", sort: true, kind: "main-cell", render: (one) => named(one.name) },
      { key: "state", label: "State", sort: true, render: (one) => badge(one.state, one.state === "prepared" ? "warn" : "info") },
      { key: "operations", label: "Operations", sort: true, kind: "end", render: (one) => count(one.operations) },
      { key: "age-seconds", label: "Open for", sort: true, kind: "end", render: (one) => duration(one["age-seconds"] ?? NaN) },
      { key: "client", label: "Client", sort: true, render: (one) => (one.client ? h("a", { href: `#/connections?${new URLSearchParams({ search: one.client.replace(/ \(.*\)$/, "") })}` }, one.client) : h("span", { class: "muted" }, "disconnected")) },
      { key: "actions", name: "Actions", kind: "fit", render: (one) => one.state === "prepared" && h("div", { class: "row" }, decide(view, one, true), decide(view, one, false)) },
    ],
  });
  view.every(REFRESH_S);
  return page("Transactions", { lead: "Prepared transactions hold their messages until a coordinator, or an administrator, decides them." },
    h("section", { class: "panel", "aria-label": "Transactions" }, list.element));
}

/** The global ID of a transaction as text, if its bytes are one, above its hexadecimal digits. */
function named(name) {
  const bytes = /^([0-9a-f]{2})+$/.test(name) ? name.match(/../g).map((pair) => parseInt(pair, 16)) : [];
  const isText = bytes.length > 0 && bytes.every((one) => one >= 0x20 && one < 0x7f);
  return isText ? [h("strong", {}, String.fromCharCode(...bytes)), h("div", { class: "muted mono" }, name)] : h("span", { class: "mono" }, name);
}

function decide(view, one, isCommit) {
  const verb = isCommit ? "Commit" : "Roll back";
  return button(verb, () => confirm({
    title: `${verb} the transaction`, label: verb,
    text: ["This decides ", h("code", {}, one.name), " without its coordinator. If the coordinator decided otherwise, other databases and this broker disagree afterwards."],
    action: async () => {
      await view.api.post(path`/transactions/${one.identity}/decide`, { commit: isCommit });
      toast(isCommit ? "Committed" : "Rolled back");
      view.refresh();
    },
  }), { kind: isCommit ? "small" : "small danger" });
}
