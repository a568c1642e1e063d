// The message browser: looks at messages without consuming them, searches, and sorts out dead letters.

import { h, put } from "../dom.js";
import { path } from "../api.js";
import { amount, bytes, count, text, time } from "../format.js";
import { badge, button, empty, failed, loading, noteBox } from "../parts/basics.js";
import { barList } from "../parts/bars.js";
import { confirm, dialog } from "../parts/dialog.js";
import { form } from "../parts/form.js";
import { icon } from "../parts/icons.js";
import { toast } from "../parts/toast.js";
import { to } from "../router.js";
import { page } from "./page.js";
import { askPublish } from "./queue_actions.js";

const PAGE = 50;
const SEARCH_DELAY_MS = 350;
const PREVIEW_CHARACTERS = 90;

export function messagesPage(view) {
  const { name } = view.params;
  const chosen = new Map();
  const before = [];
  let after = view.query.after ?? "";
  let search = view.query.search ?? "";
  let next = null;
  let items = [];
  let timer = 0;

  const body = h("tbody", { role: "rowgroup" });
  const all = h("input", { type: "checkbox", "aria-label": "Select all on this page", onchange: () => { for (const one of items) choose(one, all.checked); } });
  const head = (label, kind = "") => h("th", { class: kind, role: "columnheader", scope: "col" }, label);
  const list = h("table", { class: "table", role: "table", "aria-label": "Messages" }, h("thead", { role: "rowgroup" }, h("tr", { role: "row" },
    h("th", { class: "fit", role: "columnheader" }, all), head("Message"), head("Body"), head("State"), head("Size", "end"))), body);
  const frame = h("div", { class: "table-frame" }, loading(8));
  const pager = h("div", { class: "pager" });
  const input = h("input", { class: "input", type: "search", placeholder: "Search by ID, property or body", "aria-label": "Search by ID, property or body", value: search,
    oninput: () => { clearTimeout(timer); timer = setTimeout(() => go("", input.value.trim()), SEARCH_DELAY_MS); } });
  const actions = h("div", { class: "end" });
  const tools = h("div", { class: "table-tools" }, h("div", { class: "search" }, icon("search"), input), actions);

  function go(position, text = search) {
    if (text !== search) before.length = 0;
    [after, search] = [position, text];
    chosen.clear();
    view.replaceQuery({ after, search });
    load();
  }

  async function load() {
    frame.setAttribute("aria-busy", "true");
    try {
      const answer = await view.api.get(path`/queues/${name}/messages`, { search, after, limit: PAGE }, view.signal);
      ({ items, next = null } = answer);
      for (const key of chosen.keys()) if (!items.some((one) => keyOf(one) === key)) chosen.delete(key);
      put(body, items.map(row));
      const queue = items.length || search ? null : await view.api.get(path`/queues/${name}`, {}, view.signal).catch(() => null);
      put(frame, items.length ? list : queue?.unsettled ? holders(queue) : search ? empty("Nothing found", next ? `The messages looked at so far do not match “${search}”.` : `No message matches “${search}”.`)
        : empty("No messages", "The queue is empty.", button("Publish a message", publish, { icon: "send" })));
    } catch (error) {
      if (view.signal.aborted || error.status === 401) return;
      items = [];
      put(frame, failed(error, load));
    }
    frame.removeAttribute("aria-busy");
    const back = () => go(before.pop());
    const forward = () => { before.push(after); go(next); };
    put(pager, h("span", { role: "status" }, `${amount(items.length, "message")} on this page`), h("div", { class: "row" },
      button("Earlier", back, { icon: "left", kind: "small quiet", disabled: !before.length }), button("Later", forward, { kind: "small quiet", disabled: next === null || (!search && items.length < PAGE) })));
    paintActions();
  }

  function row(one) {
    const key = keyOf(one);
    const properties = one.properties ?? {};
    const box = h("input", { type: "checkbox", "aria-label": `Select message ${key}`, checked: chosen.has(key), data: { focus: `message ${key}` }, onchange: () => choose(one, box.checked) });
    return h("tr", { role: "row", data: { key }, "aria-selected": String(chosen.has(key)) }, h("td", { class: "fit", role: "cell" }, box),
      h("td", { class: "main-cell", role: "cell" }, h("a", { href: to`/queues/${name}/messages/${one.position}` }, text(properties["message-id"] ?? `#${one.id || one.position}`)),
        properties.subject && h("div", { class: "muted" }, text(properties.subject))),
      h("td", { class: "mono", role: "cell", data: { label: "Body" } }, preview(one)), h("td", { role: "cell", data: { label: "State" } }, messageState(one)),
      h("td", { class: "end", role: "cell", data: { label: "Size" } }, bytes(one.size)));
  }

  function choose(one, isChosen) {
    const key = keyOf(one);
    if (isChosen) chosen.set(key, one);
    else chosen.delete(key);
    const element = body.querySelector(`[data-key="${CSS.escape(key)}"]`);
    element.setAttribute("aria-selected", String(isChosen));
    element.querySelector("input").checked = isChosen;
    paintActions();
  }

  function paintActions() {
    all.checked = items.length > 0 && chosen.size === items.length;
    all.indeterminate = chosen.size > 0 && chosen.size < items.length;
    const ids = [...chosen.values()].map((one) => one.position);
    put(actions, chosen.size ? [h("span", { class: "muted", role: "status" }, `${count(chosen.size)} selected`),
      button("Retry", () => act(view, name, ids, "retry", load), { icon: "refresh", title: "Send back to the queue where the message came from" }),
      button("Move", () => act(view, name, ids, "move", load), { icon: "right" }),
      button("Delete", () => act(view, name, ids, "delete", load), { kind: "danger" })] : [button("Refresh", load, { icon: "refresh", kind: "quiet" }), button("Publish", publish, { icon: "send" })]);
  }

  function publish() { askPublish(view, path`/queues/${name}/publish`, `Publish to ${name}`, {}, load); }

  paintActions();
  load();
  view.onRefresh(load);
  return page("Messages", { crumbs: [["Queues", "#/queues"], [name, to`/queues/${name}`]], lead: "Looking at messages does not consume them." },
    h("section", { class: "panel", "aria-label": "Messages" }, tools, frame, pager));
}

const keyOf = (one) => String(one.id || one.position);

/** Who holds the messages of a queue without ready ones. */
function holders(queue) {
  const some = queue.links.filter((one) => one.role === "receiver" && one.unsettled > 0);
  const held = some.reduce((sum, one) => sum + one.unsettled, 0);
  const rest = Math.max(0, queue.unsettled - held);
  return h("div", { class: "stack inset" }, noteBox("info", `No message is ready: ${amount(queue.unsettled, "message")} of this queue ${queue.unsettled === 1 ? "is" : "are"} unsettled.`,
    rest > 0 ? ` ${amount(rest, "message")} ${rest === 1 ? "waits" : "wait"} for a retry, a transaction, or to become durable.` : ""),
  some.length > 0 && barList(some.toSorted((a, b) => b.unsettled - a.unsettled).map((one) => ({ value: one.unsettled, text: `${count(one.unsettled)} unsettled`,
    label: [one.name, " ", h("a", { href: `#/connections?${new URLSearchParams({ l_search: one.name })}` }, "Show the consumer")] }))));
}

/** The beginning of a body as text. */
function preview(one) {
  const shown = one.body === null || one.body === undefined ? "" : text(one.body);
  if (!shown) return h("span", { class: "zero" }, one["body-kind"] ?? "empty");
  return shown.length > PREVIEW_CHARACTERS ? `${shown.slice(0, PREVIEW_CHARACTERS)}…` : shown;
}

/** What happened to a message so far, as badges. */
export function messageState(one) {
  const annotations = one["message-annotations"] ?? {};
  const reason = annotations["x-opt-last-death-reason"];
  const origin = annotations["x-opt-last-death-queue"];
  const failures = (one.failures ?? 0) + (one.header?.["delivery-count"] ?? 0);
  const found = [
    one.due && badge(`due ${time(one.due)}`, "info"), one.malformed && badge("malformed", "bad"), reason && badge(`${String(reason).replaceAll("_", " ")}${origin ? ` in ${text(origin)}` : ""}`, "bad"),
    failures > 0 && badge(amount(failures, "failure"), "warn"), one.redelivered && badge("redelivered", "info"), one.header?.durable === false && badge("transient"),
  ].filter(Boolean);
  return h("div", { class: "badges" }, found.length ? found : badge("ready", "good"));
}

/** Asks about an action on selected messages and runs it: retry, move or delete. */
export function act(view, queue, ids, action, done) {
  const run = async (target, create) => {
    const answer = await view.api.post(path`/queues/${queue}/messages/actions`, { action, ids, target, create });
    const number = answer.done ?? answer.moved ?? answer.count ?? ids.length;
    toast(`${{ retry: "Retried", move: "Moved", delete: "Deleted" }[action]} ${amount(number, "message")}`);
    for (const failure of (answer.failed ?? []).slice(0, 3)) toast(failure.text ?? `Message ${failure.id ?? failure} stays.`, "warning");
    done();
  };
  if (action === "delete") {
    confirm({ title: "Delete messages", label: "Delete", text: `This removes ${amount(ids.length, "message")} from ${queue} permanently.`, action: () => run() });
    return;
  }
  const isRetry = action === "retry";
  const { close } = dialog(isRetry ? "Retry messages" : "Move messages", () => [
    noteBox("info", isRetry ? `${amount(ids.length, "message")} will go back to the queue where each came from, unless you name another address.` : `${amount(ids.length, "message")} will go to this address.`),
    form({ label: isRetry ? "Retry" : "Move", cancel: () => close(), fields: [
      { name: "target", label: isRetry ? "Other address" : "To the address", required: !isRetry },
      { name: "create", label: "Create the queue if it does not exist", type: "checkbox" },
    ], submit: async ({ target, create }) => { await run(target, create); close(); } }).element]);
}
