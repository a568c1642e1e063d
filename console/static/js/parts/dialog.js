// Dialogs. The browser keeps the focus inside of a modal dialog, closes it with Escape, and returns the focus afterwards.

import { h, newId } from "../dom.js";
import { visible } from "../visible.js";
import { button, noteBox } from "./basics.js";

/** Shows a dialog with the focus on its first field. A click beside it closes it, unless something was entered. *body(close)* builds the content; a list of buttons `foot(close)` is optional. */
export function dialog(title, body, { foot, wide = false } = {}) {
  const id = newId();
  const before = document.activeElement;
  const element = h("dialog", { "aria-labelledby": id, class: wide ? "wide" : null });
  const close = () => element.close();
  element.append(
    h("div", { class: "dialog-head" }, h("h2", { id }, title), button("", close, { icon: "close", kind: "quiet", title: "Close" })),
    h("div", { class: "dialog-body" }, body(close)));
  if (foot) element.append(h("div", { class: "dialog-foot" }, foot(close)));
  element.addEventListener("close", () => { element.remove(); if (before?.isConnected) before.focus(); });
  let isChanged = false;
  element.addEventListener("input", () => { isChanged = true; });
  element.addEventListener("click", (event) => { if (event.target === element && !isChanged) close(); });
  document.body.append(element);
  element.showModal();
  (element.querySelector("input, select, textarea") ?? element.querySelector(".dialog-foot button"))?.focus();
  return { element, close };
}

/** Asks before *action* runs. With *typed*, the button works only after that text was entered. */
export function confirm({ title, text, label, action, typed, fields, asked = "To confirm, enter the name: " }) {
  const problem = h("div", { role: "alert" });
  const go = button(label, null, { kind: "destructive", disabled: Boolean(typed) });
  const id = newId();
  const input = typed && h("input", { class: "input", id, autocomplete: "off", spellcheck: "false", oninput: () => { go.disabled = ![typed, visible(typed)].includes(input.value); } });
  const { close } = dialog(title, () => [
    h("p", {}, text), fields,
    typed && h("div", { class: "field" }, h("label", { for: id }, asked, h("code", {}, typed)), input), problem,
  ], { foot: (shut) => [button("Cancel", shut, { kind: "quiet" }), go] });
  go.addEventListener("click", async () => {
    go.disabled = true;
    try {
      await action();
      close();
    } catch (error) {
      problem.replaceChildren(noteBox("bad", error.message));
      go.disabled = false;
    }
  });
  (input || go).focus();
}
