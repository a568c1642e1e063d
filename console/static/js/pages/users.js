// Users, and what the access rules permit them.

import { h, put } from "../dom.js";
import { bytes, count, text } from "../format.js";
import { badge, button, empty, facts, noteBox, panel } from "../parts/basics.js";
import { command } from "../parts/copy.js";
import { form } from "../parts/form.js";
import { menu } from "../parts/menu.js";
import { region } from "../parts/region.js";
import { table } from "../parts/table.js";
import { to } from "../router.js";
import { page } from "./page.js";
import { askAddUser, askPassword, askRemoveUser } from "./user_actions.js";

const REFRESH_S = 5;

export function usersPage(view) {
  const tools = h("div");
  const changes = h("div");
  const reload = () => list.reload();
  const list = table(view, {
    label: "Users", search: "Filter by name", csv: "/users", sort: "name", rowKey: (one) => one.name,
    load: (query, signal) => view.api.get("/users", query, signal),
    none: () => empty("No users", "No user is connected, and none has queues."), tools,
    painted: ({ accounts }) => {
      if (accounts.can_change && !tools.hasChildNodes()) put(tools, button("Add user", () => askAddUser(view, reload), { icon: "plus", kind: "primary" }));
      if (!accounts.can_change) put(tools);
      put(changes, !accounts.can_change && withoutForms(accounts.denial_reason));
    },
    columns: [
      { key: "name", label: "User", sort: true, kind: "main-cell", render: (one) => h("a", { href: to`/users/${one.name}`, data: { focus: `user ${one.name}` } }, one.name) },
      { key: "connections", label: "Connections", sort: true, kind: "end", render: (one) => count(one.connections) },
      { key: "links", label: "Links", sort: true, kind: "end", render: (one) => count(one.links) },
      { key: "queues", label: "Queues", sort: true, kind: "end", render: (one) => count(one.queues) },
      { key: "durable-bytes", label: "Durable", sort: true, kind: "end", render: (one) => bytes(one["durable-bytes"]) },
      { key: "blocked", label: "State", render: (one) => (one.blocked ? badge(`blocked: ${one.blocked}`, "bad") : badge("ok", "good")) },
      { key: "actions", name: "Actions", kind: "fit", render: (one) => menu(`Actions for ${one.name}`, [["Show access", () => view.go(to`/users/${one.name}`)],
        ...(one["has-account"] ? [["Change the password", () => askPassword(view, one.name, reload)]] : []),
        ...(one["has-account"] && one.name !== view.session.user ? [["Remove", () => askRemoveUser(view, one.name, reload), "danger"]] : [])], `actions ${one.name}`) },
    ],
  });
  view.every(REFRESH_S);
  return page("Users and rules", { lead: "The users of the broker and their access rules." }, h("section", { class: "panel", "aria-label": "Users" }, list.element), changes);
}

/** The reason why this session cannot change users, and the commands that can. */
function withoutForms(reason) {
  return panel("Add and remove users", h("div", { class: "stack" }, noteBox("info", reason),
    h("p", { class: "muted" }, "The users are in a file on the host of the broker. Run these commands there; the second one makes the broker read the file again."),
    command("cairnmq users add NAME --users-file FILE"), command("cairnmq ctl reload")));
}

export function userPage(view) {
  const { name } = view.params;
  let resource = view.query.name ?? "";
  const { element, reload } = region(view, { lines: 8, load: (signal) => view.api.get("/access", { user: name, name: resource }, signal), paint: access });
  const ask = form({ label: "Show", kind: "", fields: [{ name: "resource", label: "Queue or exchange", value: resource, help: "Empty: what the user may do with any name." }],
    submit: ({ resource: given = "" }) => { resource = given; view.replaceQuery({ name: resource }); return reload(); } });
  const usage = region(view, { lines: 4, load: async (signal) => (await view.api.get("/users", { search: name, per_page: 200 }, signal)).items.find((one) => one.name === name), paint: quota });
  view.every(REFRESH_S, usage.reload);
  return page(`What may ${name} do?`, { crumbs: [["Users", "#/users"]] }, panel("Which rights?", ask.element), element, panel("Usage and limits", usage.element));
}

function access(found) {
  const may = found.may ?? found.items ?? [];
  const rules = found.rules ?? [];
  if (!may.length && !rules.length) return panel("Access", found.text ? noteBox("info", found.text) : empty("No rules", "The broker has no access rules, so each user may do everything."));
  return h("div", { class: "grid" }, may.length > 0 && panel("Permissions", grid(["Action", "Resource", "Effect", "Reason"], may.map((one) => [
    text(one.action), h("code", {}, text(one.resource)), badge(one.allowed ? "allowed" : "denied", one.allowed ? "good" : "bad"), one.rule ? h("code", {}, text(one.rule)) : one.reason || h("span", { class: "zero" }, "–")])), { flush: true }),
  rules.length > 0 && panel("Rules that apply, first match first", grid(["", "Action", "Resource"], rules.map((one) => (typeof one === "string" ? ["", h("code", {}, one), ""] : [
    badge(text(one.effect), one.effect === "allow" ? "good" : "bad"), text(one.action), h("code", {}, text(one.resource))]))), { flush: true }));
}

function grid(heads, rows) {
  return h("div", { class: "table-frame" }, h("table", { class: "table", role: "table" }, h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, heads.map((one) => h("th", { scope: "col", role: "columnheader" }, one || h("span", { class: "visually-hidden" }, "Effect"))))),
    h("tbody", { role: "rowgroup" }, rows.map((cells) => h("tr", { role: "row" }, cells.map((one, number) => h("td", { role: "cell", data: { label: heads[number] } }, one)))))));
}

function quota(user) {
  if (!user) return h("p", { class: "muted" }, "This user has no connections and no queues.");
  const limit = (key, format) => (user[key] ? `of ${format(user[key])}` : "");
  return facts([["Connections", `${count(user.connections)} ${limit("max-connections", count)}`], ["Links", `${count(user.links)} ${limit("max-links", count)}`], ["Queues", `${count(user.queues)} ${limit("max-queues", count)}`],
    ["Durable messages", `${bytes(user["durable-bytes"])} ${limit("max-durable-bytes", bytes)}`], ["Transient messages", bytes(user["transient-bytes"])], ["Send rate", user["max-messages-per-second"] ? `at most ${count(user["max-messages-per-second"])}/s` : "unlimited"],
    ["Share of the core", user["core-share"]], ["Blocked", user.blocked]]);
}
