// Small parts that all pages use: buttons, panels, facts, badges, and the states of a part without data.

import { h, put } from "../dom.js";
import { icon } from "./icons.js";

/** A button. Options: `icon`, `kind` (primary, danger, quiet, …), `title` for one without a text, and further attributes. */
export function button(label, action, { icon: name, kind = "", title, ...more } = {}) {
  return h("button", { type: "button", class: `button ${kind}${label ? "" : " icon"}`, "aria-label": label ? null : title, title, onclick: action, ...more },
    name && icon(name), label);
}

export function link(label, href, { icon: name, kind = "", ...more } = {}) {
  return h("a", { href, class: `button ${kind}`, ...more }, name && icon(name), label);
}

/** A titled box. */
export function panel(title, body, { actions = [], flush = false, label } = {}) {
  return h("section", { class: "panel", "aria-label": title ?? label },
    title && h("div", { class: "panel-head" }, h("h2", {}, title), ...actions),
    h("div", { class: flush ? "panel-body flush" : "panel-body" }, body));
}

/** Names and values: pairs, of which those without a value are left out. */
export function facts(pairs) {
  return h("dl", { class: "facts" }, pairs.filter(([, value]) => ![null, undefined, false, ""].includes(value))
    .map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

/** Large figures in a row; `set(number, value, note)` changes one. */
export function stats(names) {
  const cells = names.map((name) => ({ name, value: h("dd", {}), note: h("div", { class: "note" }) }));
  const element = h("dl", { class: "stats" }, cells.map(({ name, value, note }) => h("div", { class: "stat" }, h("dt", {}, name), value, h("dd", { class: "note" }, note))));
  return { element, set(number, value, note = "") { put(cells[number].value, value); put(cells[number].note, note); } };
}

export const badge = (label, kind = "") => h("span", { class: `badge ${kind}` }, label);

export const noteBox = (kind, ...text) =>
  h("div", { class: `note-box ${kind}` }, icon(kind === "bad" ? "error" : kind === "warn" ? "warning" : kind === "good" ? "done" : "info"), h("div", {}, ...text));

export const loading = (lines = 4) =>
  h("div", { class: "skeleton", role: "status", "aria-label": "Loading" }, Array.from({ length: lines }, () => h("i")));

export const empty = (title, text, ...more) => h("div", { class: "state" }, icon("empty"), h("strong", {}, title), text && h("p", {}, text), ...more);

/** The state of a part whose data could not be loaded. */
export function failed(error, retry) {
  const titles = { 403: "Not allowed", 404: "Not found", 501: "Not available" };
  return h("div", { class: "state", role: "alert" }, icon(error.status === 501 ? "info" : "error"),
    h("strong", {}, titles[error.status] ?? "This could not be loaded"), h("p", {}, error.message),
    retry && error.status !== 501 && button("Try again", retry, { icon: "refresh", kind: "small" }));
}

/** A choice of one of several: pairs of value and label. */
export function segments(label, choices, chosen, change) {
  const buttons = choices.map(([value, text]) => h("button", { type: "button", "aria-pressed": String(value === chosen), onclick: () => {
    buttons.forEach((one, number) => one.setAttribute("aria-pressed", String(choices[number][0] === value)));
    change(value);
  } }, text));
  return h("div", { class: "segments", role: "group", "aria-label": label }, buttons);
}
