// Dialogs. The browser keeps the focus inside of a modal dialog, closes it with Escape, and returns the focus afterwards.

import { h, newId } from "../dom.js";
import { button, noteBox } from "./basics.js";

/** Shows a dialog. *body(close)* builds the content; a list of buttons `foot(close)` is optional. */
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
  element.addEventListener("click", (event) => { if (event.target === element) close(); });
  document.body.append(element);
  element.showModal();
  return { element, close };
}

/** Asks before *action* runs. With *typed*, the button works only after that text was entered. */
export function confirm({ title, text, label, action, typed, fields }) {
  const problem = h("div", { role: "alert" });
  const go = button(label, null, { kind: "destructive", disabled: Boolean(typed) });
  const id = newId();
  const input = typed && h("input", { class: "input", id, autocomplete: "off", spellcheck: "false", oninput: () => { go.disabled = input.value !== typed; } });
  const { close } = dialog(title, () => [
    h("p", {}, text), fields,
    typed && h("div", { class: "field" }, h("label", { for: id }, "To confirm, enter the name: ", h("code", {}, typed)), input), problem,
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
